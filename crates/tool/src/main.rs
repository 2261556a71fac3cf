//! The tool for people.

fn main() -> std::process::ExitCode {
    // `try` and `conformance` start the program again, as the first process of a container.
    flex_desk::sandbox::entered().unwrap_or_else(flex_tool::main)
}

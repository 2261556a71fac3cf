//! The orchestrator's command line.

fn main() -> std::process::ExitCode {
    flex_provisioner::cli::main()
}

//! The orchestrator.

fn main() -> std::process::ExitCode {
    flex_provisioner::orchestrate::main()
}

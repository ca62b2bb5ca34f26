//! The program.

fn main() -> std::process::ExitCode {
    tidegate::cli::run(std::env::args_os())
}

//! Hands over: to supervisor, keeper and the workers of this program at once, to all else by way of the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // These are started for every task and step: they do not wait for an argument parser.
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some("keep") => workspool::keeper::main(args),
        Some("exec") => workspool::runner::exec(args),
        Some("mock") => workspool::worker::mock::main(args),
        Some("command") => workspool::worker::command::main(args),
        _ => workspool::cli::main(),
    }
}

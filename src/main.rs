//! Hands over: to supervisor and keeper at once, to all else by way of the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // These two are started for every task and step: they do not wait for an argument parser.
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some("keep") => workspool::keeper::main(args),
        Some("exec") => workspool::attempt::main(args),
        _ => workspool::cli::main(),
    }
}

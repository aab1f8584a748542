//! Hands over: to the keeper at once, to all else by way of the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|verb| verb == "keep") {
        return workspool::keeper::main(args);
    }
    eprintln!("workspool: unknown command");
    ExitCode::from(2)
}

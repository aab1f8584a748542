//! `workspool command`: the built-in worker whose objective is one command, run without a shell.
//!
//! Nothing in it is expanded: `$`, `*`, `|`, `>` and `;` are characters like any other. The program takes
//! this process's place, so that it is supervised as if it had been started itself; where nothing stands between
//! (no `wrap`), a supervisor does start it itself.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The exit code for an objective that is no command.
const USAGE: u8 = 2;
/// The exit codes that shells have for a program that may not be run, and for one that is not there.
const NOT_ALLOWED: u8 = 126;
const NOT_FOUND: u8 = 127;

const HELP: &str = "\
Run one command without a shell, as the worker `command` does with the objective of a task

Usage: workspool command FILE

FILE - reads standard input. It holds the program and its arguments: a JSON list, such as
[\"sed\", \"-i\", \"s/a b/c/\", \"x.txt\"], or words. Words in '…' or \"…\" belong together; nothing is
expanded.";

/// Carries `workspool command` out.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let file = match (args.next(), args.next()) {
        (Some(help), None) if help == "-h" || help == "--help" => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        (Some(file), None) => file,
        _ => return refuse(USAGE, "expected one file; see `workspool command --help`"),
    };
    let argv = match read(Path::new(&file)).and_then(|text| words(&text)) {
        Ok(argv) => argv,
        Err(message) => return refuse(USAGE, &message),
    };
    let Some((program, args)) = argv.split_first() else {
        return refuse(USAGE, "the objective is empty: expected a program and its arguments");
    };
    // Only comes back where it could not be done.
    let error = Command::new(program).args(args).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_ALLOWED };
    refuse(code, &format!("cannot run {program:?}: {error}"))
}

fn refuse(code: u8, message: &str) -> ExitCode {
    eprintln!("workspool command: {message}");
    ExitCode::from(code)
}

fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().read_to_string(&mut text)
    } else {
        fs::File::open(file).and_then(|mut f| f.read_to_string(&mut text))
    };
    read.map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    Ok(text)
}

/// How a worker's profile names this program and the file of the objective.
pub(super) const ARGV: [&str; 3] = ["{workspool}", "command", "{prompt_file}"];

/// The program and its arguments.
pub(super) fn words(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(|e| {
            format!("the objective begins as a JSON list, and is none of strings ({e}): expected [\"program\", \"argument\"]")
        });
    }
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => found.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quotation mark {open} is not closed; a JSON list of arguments needs none"));
    }
    found.extend(word);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_nothing_is_expanded() {
        assert_eq!(
            words("  sed -i\t's/a b/$HOME/' \"x y\"*\n").unwrap(),
            ["sed", "-i", "s/a b/$HOME/", "x y*"]
        );
        assert_eq!(words("a '' b").unwrap(), ["a", "", "b"]);
        assert_eq!(words("[\"a\", \"b c\"]").unwrap(), ["a", "b c"]);
        assert_eq!(words(" ").unwrap(), Vec::<String>::new());
        assert!(words("echo 'x").unwrap_err().contains("not closed"));
        assert!(words("[1]").unwrap_err().contains("JSON"));
    }
}

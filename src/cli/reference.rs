//! The reference of the command line, `docs/cli.md`, made from the same definitions as `--help`.

use super::Cli;
use clap::{Arg, Command, CommandFactory as _};
use std::fmt::Write as _;

const HEAD: &str = "\
# Command line

This page is made from the program's own definitions (`UPDATE_DOCS=1 cargo test --test docs`); a test fails
when the two differ.

A task is named by its id, by the beginning or end of it (at least four characters, if only one task fits), or
by the name of the file that was dropped into an inbox. Results go to standard output, everything else to
standard error. Colour appears on a terminal only, and not if `NO_COLOR` is set.
";

const EXIT: &str = "\
## Exit codes

| code | meaning |
| --- | --- |
| 0 | it was done; for `--wait` and `wait`: every task succeeded |
| 1 | a fault of the program or of the machine |
| 2 | the command line is wrong |
| 3 | a task, a batch or a file is wrong |
| 4 | there is no such task, worker or file, or several fit |
| 5 | the repository cannot be used |
| 6 | the task is not in a state in which this can be done, or the idempotency key was used for something else |
| 7 | the spool cannot be read or written, or the disk is too full |
| 8 | the configuration is wrong |
| 9 | the time to wait was over first |
| 17 | the repository does not take the change: a conflict, or something of yours in the way; nothing was touched |
| 40 | `check` or `audit` found a problem |
| 41 | another loop works this spool |

`submit --wait` and `wait` end with the code of the first task that did not succeed:

| code | state or class |
| --- | --- |
| 10 | failed: the worker failed (`worker_failed`) |
| 11 | timed out (`timeout`, `start_timeout`, `silence_timeout`) |
| 12 | cancelled |
| 13 | budget exceeded |
| 14 | interrupted |
| 15 | expired |
| 16 | skipped: a task that it needs did not succeed |
| 20 | failed: the gate (`gate_failed`) |
| 21 | failed: the gate in a clean tree (`gate_env`) |
| 22 | failed: `rate_limited` |
| 23 | failed: `quota` |
| 24 | failed: `auth` |
| 25 | failed: `not_found` |
| 26 | failed: `context_full` |
| 27 | failed: `permission` |
| 28 | failed: `deliverables_missing` |
| 29 | failed: `workspace` |
| 30 | failed: `disk` |
| 31 | failed: `internal` |
";

/// Renders the reference.
pub fn reference() -> String {
    let mut root = Cli::command();
    root.build();
    let mut out = HEAD.to_owned();
    out.push_str("\n## Options of every verb\n\n");
    for arg in root.get_arguments().filter(|a| a.is_global_set() && !a.is_hide_set()) {
        option(&mut out, arg);
    }
    for verb in root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        command(&mut out, verb, "workspool", 2);
    }
    out.push('\n');
    out.push_str(EXIT);
    out
}

fn command(out: &mut String, cmd: &Command, parent: &str, level: usize) {
    let name = format!("{parent} {}", cmd.get_name());
    let _ = write!(out, "\n{} `{name}`\n\n", "#".repeat(level));
    if let Some(about) = cmd.get_long_about().or_else(|| cmd.get_about()) {
        let _ = writeln!(out, "{}\n", plain(&about.to_string()));
    }
    let verbs: Vec<&Command> =
        cmd.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help").collect();
    if verbs.is_empty() {
        let mut usage = cmd.clone();
        let usage = usage.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(out, "```text\n{usage}\n```\n");
    }
    for arg in cmd.get_arguments().filter(|a| !a.is_global_set() && !a.is_hide_set() && a.get_id() != "help")
    {
        option(out, arg);
    }
    if let Some(examples) = cmd.get_after_help() {
        let examples = examples.to_string();
        let body = examples.split_once('\n').map_or(examples.as_str(), |(_, rest)| rest);
        let body: Vec<&str> = body.lines().map(|l| l.strip_prefix("  ").unwrap_or(l)).collect();
        let _ = write!(out, "\n```sh\n{}\n```\n", body.join("\n"));
    }
    for verb in verbs {
        command(out, verb, &name, level + 1);
    }
}

fn option(out: &mut String, arg: &Arg) {
    let value = arg.get_value_names().unwrap_or_default().iter().map(|v| format!(" {v}")).collect::<String>();
    let value = if arg.get_action().takes_values() { value } else { String::new() };
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}{value}"),
        (None, Some(long)) => format!("--{long}{value}"),
        (Some(short), None) => format!("-{short}{value}"),
        (None, None) => value.trim_start().to_owned(),
    };
    let help =
        arg.get_long_help().or_else(|| arg.get_help()).map(|h| plain(&h.to_string())).unwrap_or_default();
    let default = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect::<Vec<_>>().join(", ");
    let default = if default.is_empty() || !arg.get_action().takes_values() {
        String::new()
    } else {
        format!(" [default: {default}]")
    };
    let _ = writeln!(out, "- `{name}`: {}{default}", help.replace('\n', " "));
}

/// Help text with angle brackets that Markdown would take for HTML.
fn plain(text: &str) -> String {
    text.trim().replace('<', "&lt;")
}

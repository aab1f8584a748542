//! Every verb has an example, and every command line that help and documents show is one that is understood.

use super::words;
use clap::{Command, CommandFactory as _, Parser as _};
use std::fs;
use std::path::Path;
use workspool::cli::Cli;

/// All verbs and their own verbs that a user may see, each with its words.
fn verbs(command: &Command, above: &[String]) -> Vec<(Vec<String>, Command)> {
    let seen = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    seen.flat_map(|c| {
        let mut words = above.to_vec();
        words.push(c.get_name().to_owned());
        let mut all = vec![(words.clone(), c.clone())];
        all.extend(verbs(c, &words));
        all
    })
    .collect()
}

/// Why a command line is not understood; `None` if it is. One that is not whole may lack what must follow.
fn fault(words: &[String], whole: bool) -> Option<String> {
    // The built-in worker is a program of its own, which takes no options.
    if words.get(1).is_some_and(|verb| verb == "mock") {
        return None;
    }
    match Cli::try_parse_from(words) {
        Ok(_) => None,
        Err(e) if !e.use_stderr() => None,
        Err(e) if !whole && lacks(&e) => None,
        Err(e) => Some(format!("{}: {e}", words.join(" "))),
    }
}

fn lacks(e: &clap::Error) -> bool {
    use clap::error::ErrorKind::{
        DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
    };
    matches!(e.kind(), MissingRequiredArgument | MissingSubcommand | DisplayHelpOnMissingArgumentOrSubcommand)
}

#[test]
fn every_verb_has_an_example_of_itself() {
    let mut root = Cli::command();
    root.build();
    let all = verbs(&root, &["workspool".to_owned()]);
    assert!(all.len() > 40, "{}", all.len());
    let mut wrong = Vec::new();
    for (name, command) in all {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = help.lines().filter_map(|l| l.strip_prefix("  ")).collect();
        let found: Vec<Vec<String>> = lines.iter().flat_map(|line| words::commands(line)).collect();
        if !help.starts_with("Example") || lines.is_empty() {
            wrong.push(format!("{}: no example", name.join(" ")));
        } else if !found.iter().any(|words| words.starts_with(&name)) {
            wrong.push(format!("{}: no example begins with it", name.join(" ")));
        }
        for line in lines.iter().filter(|line| words::commands(line).is_empty()) {
            wrong.push(format!("{}: this calls nothing: {line}", name.join(" ")));
        }
        wrong.extend(found.iter().filter_map(|words| fault(words, true)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a document shows: a line of a block, to be copied as it is, or a verb in a sentence, which may stand
/// without its arguments.
struct Shown {
    line: String,
    whole: bool,
}

/// The texts in a document that may hold commands.
fn shown(text: &str) -> Vec<Shown> {
    // A line may go on in the next one.
    let text = text.replace("\\\n", "");
    let mut shown = Vec::new();
    let mut block_line = |line: &str| shown.push(Shown { line: line.to_owned(), whole: true });
    let mut block: Option<&str> = None;
    let mut prose = String::new();
    for line in text.lines() {
        match (block, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            // In a `console` block only what is typed, not what comes back.
            (Some("console"), None) => line.strip_prefix("$ ").into_iter().for_each(&mut block_line),
            (Some("sh" | "bash"), None) => block_line(line),
            (Some(_), None) => {}
            (None, None) => prose.push_str(&format!("{}\n", line.trim())),
        }
    }
    // Backquotes may go over the end of a line; a doubled one never shows a command.
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    let spans = spans.filter(|span| span.starts_with("workspool "));
    shown.extend(spans.map(|line| Shown { line, whole: false }));
    shown
}

#[test]
fn every_command_that_the_documents_show_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = ["README.md", "CHANGELOG.md", "docs", "scripts", "queue-schema"];
    let pages = all.iter().flat_map(|name| walkdir::WalkDir::new(root.join(name)));
    let mut wrong = Vec::new();
    let mut understood = 0;
    for page in
        pages.map(|entry| entry.unwrap().into_path()).filter(|p| p.extension().is_some_and(|e| e == "md"))
    {
        for Shown { line, whole } in shown(&fs::read_to_string(&page).unwrap()) {
            for words in words::commands(&line) {
                match fault(&words, whole) {
                    Some(why) => wrong.push(format!("{}: {line:?}\n{why}", page.display())),
                    None => understood += 1,
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(understood > 100, "{understood}");
}

//! `workspool config`: what holds and where it comes from, whether it is right, and a file to begin with.

use super::exit::{self, Exit};
use super::term;
use crate::care::doctor;
use crate::model::config_keys::{self, to_toml};
use crate::model::input;
use crate::spool::Spool;
use crate::spool::config::settings;

/// Show and check the configuration, or write a file to begin with
///
/// A flag goes before a variable, a variable before the file, the file before the default. The file is
/// `config.toml` in the spool (or what WORKSPOOL_CONFIG names); it is never written but by `config init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool config show
  workspool config show disk.reserve_bytes --json
  workspool config check
  workspool config init
  WORKSPOOL_MAX_CONCURRENCY=1 workspool run --drain
  workspool run --set max_concurrency=1")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the value of every key, and where it comes from
    #[command(after_help = "Examples:
  workspool config show
  workspool config show --changed
  workspool config show defaults notify.webhook --json")]
    Show {
        /// Show only these keys, or the keys of these tables
        keys: Vec<String>,
        /// Show only what is not the default
        #[arg(long)]
        changed: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what is wrong in the file and the environment
    #[command(after_help = "Examples:
  workspool config check
  WORKSPOOL_POLL=0 workspool config check --json")]
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a file with every key, its meaning and its default, unless there is one
    #[command(after_help = "Examples:
  workspool config init
  workspool config init --print | less")]
    Init {
        /// Print it and write nothing
        #[arg(long)]
        print: bool,
    },
}

/// Carries the verb out.
pub fn run(spool: &Spool, args: &Args) -> Result<u8, Exit> {
    match &args.verb {
        Verb::Show { keys, changed, json } => show(spool, keys, *changed, *json),
        Verb::Check { json } => check(spool, *json),
        Verb::Init { print } => init(spool, *print),
    }
}

fn show(spool: &Spool, wanted: &[String], changed: bool, json: bool) -> Result<u8, Exit> {
    let mut all = settings(spool)?;
    for name in wanted {
        let known = |k: &str| k == name || k.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with('.'));
        if !all.iter().any(|s| known(&s.key)) {
            let keys: Vec<&str> = all.iter().map(|s| s.key.as_str()).collect();
            let hint = input::nearest(name, &keys).map(|n| format!("\n  hint: did you mean {n}?"));
            let text = format!("there is no key {name}");
            return Err(Exit::new(exit::NOT_FOUND, text + &hint.unwrap_or_default()));
        }
    }
    let asked = |key: &str| {
        wanted.is_empty()
            || wanted
                .iter()
                .any(|w| key == w || key.strip_prefix(w.as_str()).is_some_and(|r| r.starts_with('.')))
    };
    all.retain(|s| asked(&s.key) && !(changed && s.source.as_str() == "default"));
    if json {
        term::json(
            &serde_json::json!({ "spool": spool.root(), "file": spool.config_file(), "settings": all }),
        )?;
        return Ok(0);
    }
    let rows: Vec<(String, String, &str)> =
        all.iter().map(|s| (s.key.clone(), to_toml(&s.value), s.source.as_str())).collect();
    let width = rows.iter().map(|r| r.0.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|r| r.1.chars().count()).max().unwrap_or(0).min(40);
    for (key, value, source) in rows {
        term::line(&term::printable(&format!("{key:width$}  {value:value_width$}  {source}")))?;
    }
    Ok(0)
}

fn check(spool: &Spool, json: bool) -> Result<u8, Exit> {
    let findings = doctor::configuration(spool);
    if json {
        term::json(&findings)?;
    } else {
        super::doctor::print(&findings)?;
    }
    Ok(if findings.iter().any(|f| f.level == doctor::Level::Error) { exit::CONFIG } else { 0 })
}

fn init(spool: &Spool, print: bool) -> Result<u8, Exit> {
    let text = config_keys::initial_file();
    if print {
        term::write(text.as_bytes())?;
        return Ok(0);
    }
    let path = spool.config_file();
    if !crate::durable::create_new(&path, text.as_bytes())? {
        let text = format!("{} is there already: it is not written over", path.display());
        return Err(Exit::new(
            exit::STATE,
            text + "\n  hint: `workspool config init --print` shows a new one",
        ));
    }
    term::line(&format!("wrote {}", path.display()))?;
    Ok(0)
}

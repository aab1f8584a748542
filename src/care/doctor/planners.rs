//! Whether the planners on this machine have the MCP server registered, and start this program with this
//! spool. Their configurations are theirs: nothing is mended without being shown first, by `setup`.

use super::{Context, Finding, command, shell};
use crate::setup::{self, Client, Registration};
use crate::spool::Spool;
use crate::worker::env::{find_executable, own_executable};
use std::path::{Path, PathBuf};

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let Some(home) = std::env::home_dir().filter(|h| h.is_absolute()) else {
        return Ok(vec![
            Finding::warning("there is no home folder, so planners cannot be looked for")
                .why("their configurations lie there")
                .fix("export HOME=\"$(getent passwd \"$(id -un)\" | cut -d: -f6)\""),
        ]);
    };
    Ok(examine(context, &home))
}

fn examine(context: &Context<'_>, home: &Path) -> Vec<Finding> {
    let found: Vec<Finding> = setup::ALL.iter().filter_map(|client| one(context, home, client)).collect();
    if !found.is_empty() {
        return found;
    }
    vec![Finding::ok("no planner that workspool knows is on this machine")]
}

/// What is to be said of a client; nothing of one that is not here.
fn one(context: &Context<'_>, home: &Path, client: &Client) -> Option<Finding> {
    let title = client.title;
    let set_up = command(context, &format!("setup {}", client.name));
    match setup::registered(client, home) {
        Err(e) => Some(
            Finding::warning(format!("{title}: {e:#}"))
                .why("nobody knows whether it can submit tasks; perhaps it does not start, either")
                .fix(command(context, &format!("setup {} --print", client.name))),
        ),
        Ok(None) => setup::is_there(client, home).then(|| {
            Finding::note(format!("{title} is here, and has no MCP server of workspool"))
                .why("it cannot submit tasks")
                .fix(set_up)
        }),
        Ok(Some(entry)) => Some(match fault(context, &entry) {
            None => Finding::ok(format!("{title}: registered")),
            Some((what, why, false)) => Finding::note(format!("{title}: {what}")).why(why).fix(set_up),
            Some((what, why, true)) => Finding::error(format!("{title}: {what}")).why(why).fix(set_up),
        }),
    }
}

/// What is wrong with an entry, why that matters, and whether the server does not start.
fn fault(context: &Context<'_>, entry: &Registration) -> Option<(String, &'static str, bool)> {
    const NO_START: &str = "it cannot start the server: none of its tools is there";
    let file = entry.file.display();
    let Some(program) = entry.command.first() else {
        return Some((format!("{file} names no program for workspool"), NO_START, true));
    };
    let shown = shell(program);
    let Some(path) = find_executable(program) else {
        return Some((
            format!("{file} starts {shown}, which is not there or not executable"),
            NO_START,
            true,
        ));
    };
    if !entry.command.iter().any(|word| word == "mcp") {
        return Some((format!("{file} starts {shown} without the word mcp"), NO_START, true));
    }
    if entry.is_off {
        return Some((format!("{file} has the server switched off"), "it cannot submit tasks", false));
    }
    let same = own_executable().is_ok_and(|own| path.canonicalize().ok() == own.canonicalize().ok());
    if !same {
        let what = format!("{file} starts {}, and this is another program", shell(&path.to_string_lossy()));
        return Some((what, "it may be another version, with other tools and formats", false));
    }
    let spool = spool(entry)?;
    (spool != context.spool.root()).then(|| {
        let what = format!("its tasks go to the spool {}", spool.display());
        (what, "they are not in the one that is looked at here", false)
    })
}

/// The spool that an entry means, as far as it can be told.
fn spool(entry: &Registration) -> Option<PathBuf> {
    let after = entry.command.iter().skip_while(|word| *word != "--spool").nth(1);
    let joined = entry.command.iter().find_map(|word| word.strip_prefix("--spool="));
    let named = after.map(String::as_str).or(joined);
    let named = named.or_else(|| entry.env.get("WORKSPOOL_HOME").map(String::as_str));
    let path = Spool::locate(named.map(PathBuf::from)).ok()?;
    Some(path.canonicalize().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::Fixture;
    use super::*;
    use serde_json::{Value, json};

    /// What is said of Cursor, with an entry of ours in its file.
    fn said(fixture: &Fixture, entry: &Value) -> Finding {
        let home = fixture.dir.path();
        let text = json!({ "mcpServers": { "other": {}, "workspool": entry } }).to_string();
        std::fs::create_dir_all(home.join(".cursor")).unwrap();
        std::fs::write(home.join(".cursor/mcp.json"), text).unwrap();
        one(&fixture.context(), home, Client::named("cursor").unwrap()).unwrap()
    }

    #[test]
    fn an_entry_is_right_only_if_it_starts_this_program_with_this_spool() {
        let fixture = Fixture::new();
        let own = own_executable().unwrap();
        let spool = fixture.root();
        let good = said(&fixture, &json!({ "command": own, "args": ["--spool", spool, "mcp"] }));
        assert_eq!((good.level, good.what.as_str()), (Level::Ok, "Cursor: registered"));
        let by_variable = json!({ "command": own, "args": ["mcp"], "env": { "WORKSPOOL_HOME": spool } });
        assert_eq!(said(&fixture, &by_variable).level, Level::Ok);

        for (entry, level, word) in [
            (json!({ "command": "/no/such/workspool", "args": ["mcp"] }), Level::Error, "not there"),
            (json!({ "args": ["mcp"] }), Level::Error, "names no program"),
            (json!({ "command": own, "args": ["list"] }), Level::Error, "without the word mcp"),
            (json!({ "command": own, "args": ["mcp"], "disabled": true }), Level::Note, "switched off"),
            (json!({ "command": "/bin/sh", "args": ["mcp"] }), Level::Note, "another program"),
            (json!({ "command": own, "args": ["--spool", "/other", "mcp"] }), Level::Note, "/other"),
        ] {
            let bad = said(&fixture, &entry);
            assert_eq!(bad.level, level, "{bad:?}");
            assert!(bad.what.contains(word) && bad.why.is_some(), "{bad:?}");
            assert!(bad.fix.unwrap().ends_with("setup cursor"));
        }
    }

    #[test]
    fn a_planner_without_us_is_a_note_and_one_that_cannot_be_read_a_warning() {
        let fixture = Fixture::new();
        let home = fixture.dir.path();
        let of = |name: &str| one(&fixture.context(), home, Client::named(name).unwrap());
        assert_eq!(of("windsurf"), None, "it is not here");
        std::fs::create_dir_all(home.join(".codeium/windsurf")).unwrap();
        let found = of("windsurf").unwrap();
        assert!(found.level == Level::Note && found.fix.unwrap().ends_with("setup windsurf"));
        std::fs::write(home.join(".codeium/windsurf/mcp_config.json"), "{ \"mcpServers\": ").unwrap();
        let found = of("windsurf").unwrap();
        assert!(found.level == Level::Warning && found.what.contains("mcp_config.json"), "{found:?}");
        assert_eq!(of("windsurf").unwrap().level, Level::Warning);
    }
}

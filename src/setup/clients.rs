//! The clients that can be set up, as data: where each keeps its servers, and in what form.

use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// Where its configuration lies.
    pub file: Place,
    /// How the configuration is written.
    pub format: Format,
    /// The names under which servers stand in it.
    pub path: &'static [&'static str],
    /// The form of a server's entry.
    pub shape: Shape,
    /// Its own commands to register and to forget a server, where it has both.
    pub own: Option<Own>,
    /// Whether it starts servers with a bare environment, so that they need our `PATH`.
    pub bare: bool,
    /// What its user must do for it to notice.
    pub then: &'static str,
}

/// A file relative to the home folder, on each system; or in the folder that a variable names.
#[derive(Debug)]
pub struct Place {
    pub linux: &'static str,
    pub macos: &'static str,
    /// A variable that moves it, and the file's path inside the folder that it names.
    pub moved: Option<(&'static str, &'static str)>,
}

/// How a configuration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, perhaps with comments.
    Json,
    /// TOML.
    Toml,
}

/// The form of a server's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `command`, `args`, `env`.
    Plain,
    /// The same, with `"type": "stdio"`.
    Typed,
    /// `"type": "local"`, and all arguments in `command`.
    Local,
}

/// A client's own commands. `{name}` and `{command}` (several arguments) are filled in.
#[derive(Debug)]
pub struct Own {
    pub program: &'static str,
    pub add: &'static [&'static str],
    pub remove: &'static [&'static str],
}

/// The name that the server has in every configuration.
pub const NAME: &str = "workspool";

const HOME_ONLY: Option<(&str, &str)> = None;

/// All clients.
pub const ALL: &[Client] = &[
    Client {
        name: "claude",
        title: "Claude Code",
        file: Place {
            linux: ".claude.json",
            macos: ".claude.json",
            moved: Some(("CLAUDE_CONFIG_DIR", ".claude.json")),
        },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Typed,
        own: Some(Own {
            program: "claude",
            add: &["mcp", "add", "{name}", "-s", "user", "--", "{command}"],
            remove: &["mcp", "remove", "{name}", "-s", "user"],
        }),
        bare: false,
        then: "new sessions have it; `/mcp` shows it",
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        file: Place {
            linux: ".config/Claude/claude_desktop_config.json",
            macos: "Library/Application Support/Claude/claude_desktop_config.json",
            moved: HOME_ONLY,
        },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Plain,
        own: None,
        bare: true,
        then: "quit Claude Desktop and start it again",
    },
    Client {
        name: "codex",
        title: "Codex",
        file: Place {
            linux: ".codex/config.toml",
            macos: ".codex/config.toml",
            moved: Some(("CODEX_HOME", "config.toml")),
        },
        format: Format::Toml,
        path: &["mcp_servers"],
        shape: Shape::Plain,
        own: Some(Own {
            program: "codex",
            add: &["mcp", "add", "{name}", "--", "{command}"],
            remove: &["mcp", "remove", "{name}"],
        }),
        bare: false,
        then: "new sessions have it; `codex mcp list` shows it",
    },
    Client {
        name: "opencode",
        title: "OpenCode",
        file: Place {
            linux: ".config/opencode/opencode.json",
            macos: ".config/opencode/opencode.json",
            moved: Some(("XDG_CONFIG_HOME", "opencode/opencode.json")),
        },
        format: Format::Json,
        path: &["mcp"],
        shape: Shape::Local,
        // Its own command can add a server and not remove one.
        own: None,
        bare: false,
        then: "new sessions have it",
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        file: Place { linux: ".gemini/settings.json", macos: ".gemini/settings.json", moved: HOME_ONLY },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Plain,
        own: Some(Own {
            program: "gemini",
            add: &["mcp", "add", "-s", "user", "{name}", "{command}"],
            remove: &["mcp", "remove", "-s", "user", "{name}"],
        }),
        bare: false,
        then: "new sessions have it; `/mcp` shows it",
    },
    Client {
        name: "cursor",
        title: "Cursor",
        file: Place { linux: ".cursor/mcp.json", macos: ".cursor/mcp.json", moved: HOME_ONLY },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Plain,
        own: None,
        bare: true,
        then: "switch it on in Cursor's settings under MCP",
    },
    Client {
        name: "vscode",
        title: "VS Code",
        file: Place {
            linux: ".config/Code/User/mcp.json",
            macos: "Library/Application Support/Code/User/mcp.json",
            moved: HOME_ONLY,
        },
        format: Format::Json,
        path: &["servers"],
        shape: Shape::Typed,
        own: None,
        bare: true,
        then: "`MCP: List Servers` starts it",
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        file: Place {
            linux: ".codeium/windsurf/mcp_config.json",
            macos: ".codeium/windsurf/mcp_config.json",
            moved: HOME_ONLY,
        },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Plain,
        own: None,
        bare: true,
        then: "refresh the servers in Cascade's settings",
    },
    Client {
        name: "cline",
        title: "Cline",
        file: Place {
            linux: ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            macos: "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            moved: HOME_ONLY,
        },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Plain,
        own: None,
        bare: true,
        then: "Cline notices by itself",
    },
    Client {
        name: "continue",
        title: "Continue",
        // Continue reads every file of this folder: this one is ours alone.
        file: Place {
            linux: ".continue/mcpServers/workspool.json",
            macos: ".continue/mcpServers/workspool.json",
            moved: HOME_ONLY,
        },
        format: Format::Json,
        path: &["mcpServers"],
        shape: Shape::Plain,
        own: None,
        bare: true,
        then: "reload the window; MCP is there in agent mode",
    },
];

/// How the server is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Our `PATH`, for clients that hand over none.
    pub path: Option<String>,
}

impl Client {
    /// Finds a client by its name.
    pub fn named(name: &str) -> Option<&'static Client> {
        ALL.iter().find(|c| c.name == name)
    }

    /// Where its configuration lies for a user.
    pub fn file(&self, home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
        if let Some((name, inside)) = self.file.moved
            && let Some(folder) = variable(name).filter(|p| p.is_absolute())
        {
            return folder.join(inside);
        }
        home.join(if cfg!(target_os = "macos") { self.file.macos } else { self.file.linux })
    }

    /// The names under which the entry stands.
    pub fn entry_path(&self) -> Vec<&'static str> {
        self.path.iter().copied().chain([NAME]).collect()
    }

    /// The entry that starts the server.
    pub fn entry(&self, start: &Start) -> Map<String, Value> {
        let env = match start.path.as_ref().filter(|_| self.bare) {
            Some(path) => json!({ "PATH": path }),
            None => json!({}),
        };
        let (program, arguments) = (&start.command[0], &start.command[1..]);
        let entry = match self.shape {
            Shape::Plain if env == json!({}) => json!({ "command": program, "args": arguments }),
            Shape::Plain => json!({ "command": program, "args": arguments, "env": env }),
            Shape::Typed => json!({ "type": "stdio", "command": program, "args": arguments, "env": env }),
            Shape::Local => json!({ "type": "local", "command": start.command, "enabled": true }),
        };
        entry.as_object().cloned().unwrap_or_default()
    }

    /// Its own command line to register or to forget the server.
    pub fn own_command(&self, start: Option<&Start>) -> Option<Vec<String>> {
        let own = self.own.as_ref()?;
        let mut line = vec![own.program.to_owned()];
        for word in if start.is_some() { own.add } else { own.remove } {
            match (*word, start) {
                ("{name}", _) => line.push(NAME.to_owned()),
                ("{command}", Some(start)) => line.extend(start.command.iter().cloned()),
                (word, _) => line.push(word.to_owned()),
            }
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_a_name_of_its_own_and_an_entry_that_starts_us() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), ALL.len());
        let start = Start { command: vec!["/bin/workspool".into(), "mcp".into()], path: Some("/bin".into()) };
        for client in ALL {
            let text = Value::Object(client.entry(&start)).to_string();
            assert!(text.contains("/bin/workspool") && text.contains("mcp"), "{}", client.name);
            assert_eq!(text.contains("PATH"), client.bare, "{}", client.name);
        }
        let claude = Client::named("claude").unwrap();
        assert_eq!(
            claude.own_command(Some(&start)).unwrap(),
            ["claude", "mcp", "add", "workspool", "-s", "user", "--", "/bin/workspool", "mcp"]
        );
        assert_eq!(claude.own_command(None).unwrap(), ["claude", "mcp", "remove", "workspool", "-s", "user"]);
    }

    #[test]
    fn a_variable_moves_a_configuration() {
        let codex = Client::named("codex").unwrap();
        let home = Path::new("/home/me");
        assert_eq!(codex.file(home, |_| None), Path::new("/home/me/.codex/config.toml"));
        assert_eq!(codex.file(home, |_| Some("/etc/codex".into())), Path::new("/etc/codex/config.toml"));
        assert_eq!(codex.file(home, |_| Some("relative".into())), Path::new("/home/me/.codex/config.toml"));
    }
}

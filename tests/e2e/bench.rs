//! A world in which a real program is signed in to a scripted model server.

use super::modelserver::ModelServer;
use super::support::{Repo, Submit, World};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Unusual enough to be found, should it ever turn up where it must not.
pub const KEY: &str = "scripted-key-7f3a9c51e2d84b06";

/// A world with one program.
pub struct Bench {
    pub world: World,
    pub server: ModelServer,
    pub program: &'static str,
}

impl Bench {
    pub fn new(program: &'static str) -> Bench {
        let bin = std::env::var_os("WORKSPOOL_E2E_BIN").expect("WORKSPOOL_E2E_BIN is not set");
        assert!(Path::new(&bin).join(program).exists(), "{program} is not in {}", bin.display());
        let world = World::configured("max_concurrency = 4\nrepo_concurrency = 4\n");
        let path = format!("{}:{}", bin.to_string_lossy(), std::env::var("PATH").unwrap_or_default());
        world.set_env("PATH", &path);
        let bench = Bench { world, server: ModelServer::start(), program };
        bench.scenario("write");
        bench
    }

    /// Lets the program's requests go to a scenario from now on.
    pub fn scenario(&self, scenario: &str) {
        let (url, openai) = (self.server.url(scenario), self.server.openai_url(scenario));
        let set = |name: &str, value: &str| self.world.set_env(name, value);
        match self.program {
            "claude" => {
                set("ANTHROPIC_API_KEY", KEY);
                set("ANTHROPIC_BASE_URL", &url);
            }
            "codex" => {
                set("CODEX_API_KEY", KEY);
                self.home(".codex/config.toml", &format!("openai_base_url = \"{openai}\"\n"));
            }
            "opencode" => {
                let model = json!({ "name": "Scripted", "limit": { "context": 200_000, "output": 8192 } });
                let provider = json!({
                    "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
                    "options": { "baseURL": openai, "apiKey": KEY }, "models": { "model": model }
                });
                let config = json!({
                    "model": "scripted/model", "small_model": "scripted/model", "provider": { "scripted": provider }
                });
                self.home(".config/opencode/opencode.json", &config.to_string());
            }
            "gemini" => {
                set("GEMINI_API_KEY", KEY);
                set("GOOGLE_GEMINI_BASE_URL", &url);
                // With a base URL of its own, the program takes the kind of sign-in from the settings only.
                // Ten times is its own number: minutes.
                let settings = json!({
                    "security": { "auth": { "selectedType": "gemini-api-key" } }, "general": { "maxAttempts": 2 }
                });
                self.home(".gemini/settings.json", &settings.to_string());
            }
            "qwen" => {
                set("OPENAI_API_KEY", KEY);
                set("OPENAI_BASE_URL", &openai);
                set("OPENAI_MODEL", "scripted");
            }
            "copilot" => {
                set("COPILOT_PROVIDER_BASE_URL", &openai);
                set("COPILOT_PROVIDER_TYPE", "openai");
                set("COPILOT_PROVIDER_API_KEY", KEY);
                set("COPILOT_MODEL", "scripted");
                set("COPILOT_OFFLINE", "true");
            }
            "dsh" => {
                set("DEEPSEEK_API_KEY", KEY);
                set("DEEPSEEK_BASE_URL", &openai);
            }
            "aider" => {
                set("OPENAI_API_KEY", KEY);
                set("OPENAI_API_BASE", &openai);
                // What it would ask the network for: prices of models.
                set("AIDER_ANALYTICS", "false");
            }
            other => panic!("nobody knows how {other} signs in"),
        }
    }

    fn home(&self, path: &str, content: &str) {
        let path = self.world.home().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Begins a submission to the program.
    pub fn submit(&self, repo: &Repo, objective: &str) -> Submit<'_> {
        let submit = self.world.submit(objective).repo(repo).worker(self.program).with("retries", "0");
        // What tools it offers its model depends on the model's name.
        match self.model() {
            Some(model) => submit.with("model", model),
            None => submit,
        }
    }

    /// The model to ask for, where the program does not take just any.
    pub fn model(&self) -> Option<&'static str> {
        match self.program {
            "codex" => Some("gpt-5"),
            "aider" => Some("openai/scripted"),
            _ => None,
        }
    }

    /// The words that make the model write `path`, by whatever tool the program has for it.
    pub fn order(&self, path: &str) -> String {
        match self.program {
            // It wants absolute paths, and nobody knows the workspace's before it is there.
            "qwen" => format!("[[RUN echo hello > {path}]]"),
            _ => format!("[[WRITE {path}]]"),
        }
    }
}

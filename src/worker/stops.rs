//! What a profile says that a failed run's output means.

use super::classify;
use crate::model::{ErrorClass, Profile};
use chrono::{DateTime, Utc};
use regex::bytes::Regex;

/// What a line of a failed run's output means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// Who should act.
    pub class: ErrorClass,
    /// The line.
    pub line: String,
    /// When the limit lifts that it tells of, if it says so.
    pub until: Option<DateTime<Utc>>,
}

/// Returns what the last line that one of the profile's patterns knows means. Standard output is looked at
/// only where it is text: in events, what the model wrote could be taken for the program's own words.
pub fn meaning(profile: &Profile, stderr_tail: &str, stdout_tail: &str) -> Option<Meaning> {
    let known: Vec<(Regex, ErrorClass)> = profile
        .stop_patterns
        .iter()
        .filter_map(|stop| Some((Regex::new(&stop.pattern).ok()?, stop.class)))
        .collect();
    let said = if profile.output == "text" { stdout_tail } else { "" };
    for line in stderr_tail.lines().rev().chain(said.lines().rev()) {
        let Some((_, class)) = known.iter().find(|(pattern, _)| pattern.is_match(line.as_bytes())) else {
            continue;
        };
        let until = match class {
            ErrorClass::RateLimited | ErrorClass::Quota => classify::lifts(line, Utc::now()),
            _ => None,
        };
        return Some(Meaning { class: *class, line: line.trim().to_owned(), until });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(output: &str) -> Profile {
        serde_json::from_value(serde_json::json!({
            "name": "a", "command": ["agent"], "output": output,
            "stop_patterns": [
                { "pattern": "(?i)no credit", "class": "quota" },
                { "pattern": "^please log in", "class": "auth" }
            ]
        }))
        .unwrap()
    }

    #[test]
    fn the_last_line_that_is_known_counts() {
        let found =
            meaning(&profile("text"), "please log in\nNo credit: try again in 5 minutes\nbye\n", "").unwrap();
        assert_eq!(
            (found.class, found.line.as_str()),
            (ErrorClass::Quota, "No credit: try again in 5 minutes")
        );
        assert!(found.until.is_some());
        assert_eq!(meaning(&profile("text"), "x", "please log in").unwrap().class, ErrorClass::Auth);
        assert_eq!(meaning(&profile("text"), "do please log in", ""), None);
    }

    #[test]
    fn what_the_model_wrote_into_events_is_not_looked_at() {
        assert_eq!(meaning(&profile("claude"), "", "no credit"), None);
        assert_eq!(meaning(&profile("claude"), "no credit", "").unwrap().class, ErrorClass::Quota);
    }
}

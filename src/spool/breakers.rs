//! Limits that a provider reached: until one lifts, no task of that worker and model is started.

use super::{Spool, SpoolError, names, read_json};
use crate::durable;
use crate::model::{Short, VERSION, WorkerName};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;

/// A limit that was reached: `breakers/<worker>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Version of this format.
    pub version: u32,
    /// The worker.
    pub worker: WorkerName,
    /// The model that it is about; absent: all of the worker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When it lifts.
    pub until: DateTime<Utc>,
    /// In words.
    pub message: String,
}

impl Spool {
    fn breakers(&self) -> PathBuf {
        self.root().join("breakers")
    }

    /// Notes that a limit was reached. Of two for one worker the one that lifts later counts.
    pub fn trip(&self, breaker: Breaker) -> Result<(), SpoolError> {
        let path = self.breakers().join(format!("{}.json", breaker.worker));
        if let Ok(Some(known)) = read_json::<Breaker>(&path)
            && known.until >= breaker.until
        {
            return Ok(());
        }
        let breaker = Breaker { version: VERSION, ..breaker };
        let bytes = serde_json::to_vec_pretty(&breaker)
            .map_err(|e| SpoolError::Broken(path.clone(), e.to_string()))?;
        durable::ensure_dir(&self.breakers()).map_err(|e| SpoolError::io("make", &self.breakers(), e))?;
        durable::replace(&path, &bytes).map_err(|e| SpoolError::io("write", &path, e))
    }

    /// The limits that hold now, by the digits of the worker. Those that have lifted are removed.
    pub fn tripped(&self) -> Result<HashMap<Short, Breaker>, SpoolError> {
        let dir = self.breakers();
        let mut found = HashMap::new();
        for name in names(&dir).map_err(|e| SpoolError::io("read", &dir, e))? {
            let path = dir.join(&name);
            if !name.to_str().is_some_and(|n| n.ends_with(".json") && !n.starts_with('.')) {
                continue;
            }
            match read_json::<Breaker>(&path) {
                Ok(Some(breaker)) if breaker.until > Utc::now() => {
                    found.insert(Short::of(breaker.worker.as_str()), breaker);
                }
                // One that cannot be read holds nobody up.
                _ => durable::remove_file(&path).map_err(|e| SpoolError::io("remove", &path, e))?,
            }
        }
        Ok(found)
    }
}

impl Breaker {
    /// Whether a task that asks for `model` has to wait for it.
    pub fn holds(&self, model: Option<&str>) -> bool {
        match (&self.model, model) {
            (Some(limited), Some(asked)) => limited == asked,
            _ => true,
        }
    }
}

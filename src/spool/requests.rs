//! Durable wishes: written by anybody, removed under the task's lock by whoever fulfils them.

use super::{Spool, SpoolError, names};
use crate::durable;
use crate::model::{Request, RequestKind, RequestName, TaskId, VERSION};
use std::path::PathBuf;

impl Spool {
    /// Where a request lies.
    pub fn request_path(&self, name: RequestName) -> PathBuf {
        self.requests().join(name.to_string())
    }

    /// Writes a request durably and wakes whoever can fulfil it. A second one changes nothing.
    pub fn request(
        &self,
        task: TaskId,
        attempt: u32,
        kind: RequestKind,
        reason: Option<String>,
        text: Option<String>,
    ) -> Result<(), SpoolError> {
        let path = self.request_path(RequestName { task, attempt, kind });
        let request = Request { version: VERSION, task, attempt, kind, at: chrono::Utc::now(), reason, text };
        let bytes =
            serde_json::to_vec(&request).map_err(|e| SpoolError::Broken(path.clone(), e.to_string()))?;
        durable::create_new(&path, &bytes).map_err(|e| SpoolError::io("write", &path, e))?;
        self.ring();
        Ok(())
    }

    /// Reads a request, if it was made.
    pub fn read_request(&self, name: RequestName) -> Option<Request> {
        serde_json::from_slice(&std::fs::read(self.request_path(name)).ok()?).ok()
    }

    /// All requests.
    pub fn all_requests(&self) -> Result<Vec<RequestName>, SpoolError> {
        let dir = self.requests();
        let found = names(&dir).map_err(|e| SpoolError::io("read", &dir, e))?;
        Ok(found.iter().filter_map(|n| n.to_str()?.parse().ok()).collect())
    }

    /// Removes a request that was fulfilled or came too late.
    pub fn drop_request(&self, name: RequestName) -> Result<(), SpoolError> {
        let path = self.request_path(name);
        durable::remove_file(&path).map_err(|e| SpoolError::io("remove", &path, e))
    }
}

//! Going back: a landing that cannot be finished puts everything where it was.

use super::super::index;
use super::apply::Work;
use super::intent::State;
use super::{Refusal, Step};
use crate::durable;
use std::fs;
use std::path::PathBuf;

impl Work<'_> {
    /// Puts everything back, and returns the reason; if that fails too, the record stays.
    pub(super) fn undo<T>(&mut self, refusal: Refusal) -> Result<T, Refusal> {
        match self.back() {
            Ok(()) => Err(refusal),
            Err(e) => Err(Refusal::HalfDone {
                intent: self.record.to_owned(),
                why: format!("{refusal}; and going back: {e}"),
            }),
        }
    }

    fn back(&mut self) -> Result<(), Refusal> {
        let io = |e| Refusal::io(&self.intent.desk, e);
        let (top, new, old) = self.roots().map_err(io)?;
        let placed = |step: &Step| -> Result<bool, Refusal> {
            Ok(step.adds() && new.print(step.path()).map_err(io)?.is_none())
        };
        // Nothing is moved before it is known that all of it can be.
        let theirs = self.intent.git_dir.join("index");
        let index_is_put = fs::symlink_metadata(self.index_desk("index")).is_err();
        let ours = self.index_is_ours();
        if index_is_put && !ours {
            return Err(Refusal::Changed("the index was written".into()));
        }
        for step in &self.intent.steps {
            if placed(step)? && top.print(step.path()).map_err(io)? != step.new {
                return Err(Refusal::Changed(format!("{} was edited", step.path().display())));
            }
        }
        if ours {
            // The staged one first: whoever dies here leaves what going forward needs.
            index::copy(&self.index_desk("index.put"), &self.index_desk("index")).map_err(io)?;
            super::pass("land-index-back").map_err(io)?;
            let back = match self.intent.index {
                Some(_) => {
                    let copy = self.index_desk("index.back");
                    index::copy(&self.index_desk("index.old"), &copy)
                        .and_then(|()| fs::rename(&copy, &theirs))
                }
                None => durable::remove_file(&theirs),
            };
            back.map_err(io)?;
        }
        for step in &self.intent.steps {
            if placed(step)? {
                top.move_to(step.path(), &new, step.path()).map_err(io)?;
                top.prune_above(step.path()).map_err(io)?;
            }
        }
        for (at, step) in self.intent.steps.iter().enumerate() {
            let name = PathBuf::from(at.to_string());
            if old.print(&name).map_err(io)?.is_some() {
                old.move_to(&name, &top, step.path()).map_err(io)?;
            }
        }
        // From here on there is nothing to go forward from.
        self.intent.state = State::Staging;
        self.intent.write(self.record).and_then(|()| self.forget()).map_err(io)
    }
}

//! Whether a workspace can be an overlay here.

use super::{Context, Finding};
use crate::workspace::overlay::probe;

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    Ok(vec![match probe(context.spool) {
        Ok(()) => Finding::ok("workspaces can be overlays (`--workspace overlay`)"),
        Err(unfit) => Finding::note(format!("workspaces cannot be overlays: {unfit}"))
            .why(format!("tasks with `workspace = \"overlay\"` are refused; {}", unfit.hint)),
    }])
}

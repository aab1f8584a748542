//! Whether commands can be kept from writing outside their workspace.

use super::{Context, Finding};
use crate::model::Confine;
use crate::process::confine::support;

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let support = support();
    let asked = context.config.confine.workers == Some(Confine::Strict) || context.config.confine.gate;
    let abi = support.abi.map(|abi| format!(" (Landlock {abi})")).unwrap_or_default();
    let Some(why_not) = support.why_not else {
        return Ok(vec![Finding::ok(format!(
            "commands can be kept from writing outside their workspace{abi}"
        ))]);
    };
    let what = format!("commands cannot be kept from writing outside their workspace{abi}: {why_not}");
    Ok(vec![if asked {
        Finding::warning(what).why("[confine] in config.toml asks for it, and it will not hold")
    } else {
        Finding::note(what)
    }])
}

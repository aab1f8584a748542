//! Whether overlays can be made here: by making one.

use super::root;
use crate::durable;
use crate::git::worktree::delete_tree;
use crate::process::{mounts, own_executable};
use crate::spool::Spool;
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What keeps overlays from being made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct Unfit {
    /// What happened.
    pub why: String,
    /// What to do about it.
    pub hint: String,
}

/// Tries it where the workspaces of a spool are, in a process of its own. That it works is asked once.
pub fn probe(spool: &Spool) -> Result<(), Unfit> {
    static WORKS: OnceLock<()> = OnceLock::new();
    if cfg!(not(target_os = "linux")) {
        return Err(Unfit {
            why: "only Linux has overlays of this kind".into(),
            hint: "use `worktree` or `clone` as workspace".into(),
        });
    }
    if WORKS.get().is_some() {
        return Ok(());
    }
    let said = ask(spool).unwrap_or_else(|e| Some(format!("{e:#}")));
    match said {
        None => {
            let _ = WORKS.set(());
            Ok(())
        }
        Some(why) => Err(Unfit { hint: hint(spool, &why), why }),
    }
}

/// Asks a process of its own; `None`: it works.
fn ask(spool: &Spool) -> anyhow::Result<Option<String>> {
    let place = root(spool).join(format!("probe{}", durable::unique_name()));
    durable::ensure_dir(&place)?;
    let mut command = Command::new(own_executable()?);
    command.arg("exec").arg("--probe-overlay").arg(&place).current_dir("/");
    let answer = command.stdin(Stdio::null()).output().context("cannot start this program");
    delete_tree(&place)?;
    let answer = answer?;
    let said = String::from_utf8_lossy(&answer.stderr);
    let last = said.lines().last().unwrap_or("the test was ended").trim_start_matches("workspool exec: ");
    Ok((!answer.status.success()).then(|| last.to_owned()))
}

/// In that process: makes an overlay in an empty folder, and writes to it.
pub fn probe_here(place: &Path) -> anyhow::Result<()> {
    let at = |name: &str| place.join(name);
    for name in ["lower", "upper", "work", "seen"] {
        durable::ensure_dir(&at(name))?;
    }
    for name in ["changed", "deleted"] {
        fs::write(at("lower").join(name), "1")?;
    }
    mounts::enter().context("cannot enter a namespace of its own")?;
    let parts = mounts::Overlay { lower: &at("lower"), upper: &at("upper"), work: &at("work") };
    mounts::overlay(&parts, &at("seen"))
        .with_context(|| format!("cannot mount an overlay in {}", place.display()))?;
    let tried = || -> std::io::Result<bool> {
        fs::write(at("seen").join("changed"), "2")?;
        fs::remove_file(at("seen").join("deleted"))?;
        let left = fs::read_dir(at("seen"))?.count();
        Ok(left == 1 && fs::read(at("lower").join("changed"))? == b"1")
    };
    ensure!(
        tried().context("cannot write to an overlay")?,
        "an overlay does not show what was written to it"
    );
    mounts::hide(&at("lower")).context("cannot hide a folder")
}

fn hint(spool: &Spool, why: &str) -> String {
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let is = |name: &str, value: &str| setting(name).trim() == value;
    let cure = if is("kernel/unprivileged_userns_clone", "0") {
        "the system does not let users make namespaces: `sysctl kernel.unprivileged_userns_clone=1`"
            .to_owned()
    } else if is("user/max_user_namespaces", "0") {
        "the system does not let users make namespaces: `sysctl user.max_user_namespaces=10000`".to_owned()
    } else if is("user/max_mnt_namespaces", "0") {
        "the system does not let users make namespaces: `sysctl user.max_mnt_namespaces=10000`".to_owned()
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") && !rustix::process::geteuid().is_root()
    {
        "AppArmor does not let users mount: give this program a profile with `userns`, \
         or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
            .to_owned()
    } else if why.contains("namespace") {
        "a container may forbid it: allow unshare and mount there".to_owned()
    } else {
        format!(
            "the file system of {} may not do for it: name a folder on ext4, xfs, btrfs or tmpfs as `worktrees` in config.toml",
            spool.worktrees().display()
        )
    };
    format!("{cure}; or use `worktree` as workspace")
}

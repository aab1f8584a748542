//! Landlock: rules of the kernel that a process puts on itself before it becomes the command.

use super::Support;
use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// All writes, the truncation of files and moves between folders included; control of devices is not.
const WRITES: ABI = ABI::V3;
/// Devices that programs expect to be able to write to. They keep nothing, or belong to the terminal; shared
/// memory is gone with its users.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];
const SHARED_MEMORY: &str = "/dev/shm";

pub(super) fn support() -> Support {
    // Asked by doing: on a thread that then ends, since it could never get rid of the rules.
    let probe = std::thread::spawn(|| rules(&[]).and_then(RulesetCreated::restrict_self));
    match probe.join() {
        Ok(Ok(status)) => told(&status),
        Ok(Err(e)) => Support { full: false, abi: None, why_not: Some(e.to_string()) },
        Err(_) => Support { full: false, abi: None, why_not: Some("it cannot be asked".into()) },
    }
}

pub(super) fn confine(command: &mut Command, writable: &[PathBuf]) -> io::Result<Support> {
    let (support, hook) = hook(writable)?;
    if let Some(hook) = hook {
        // SAFETY: as a hook promises.
        unsafe { command.pre_exec(hook) };
    }
    Ok(support)
}

/// What a process calls last before it becomes the command: two system calls on a descriptor that was made
/// before; nothing is allocated unless they fail.
pub type Hook = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

/// Makes the rules, to be taken on by a process that was just made.
pub fn hook(writable: &[PathBuf]) -> io::Result<(Support, Option<Hook>)> {
    let support = support();
    if support.abi.is_none() {
        return Ok((support, None));
    }
    let mut rules = Some(rules(writable).map_err(io::Error::other)?);
    let hook = move || match rules.take() {
        Some(rules) => rules.restrict_self().map(drop).map_err(|_| io::ErrorKind::PermissionDenied.into()),
        None => Ok(()),
    };
    Ok((support, Some(Box::new(hook))))
}

fn rules(writable: &[PathBuf]) -> Result<RulesetCreated, RulesetError> {
    let writes = AccessFs::from_write(WRITES);
    let devices = DEVICES.iter().map(PathBuf::from).chain([PathBuf::from(SHARED_MEMORY)]);
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writes)?
        // Nor can it signal what watches over it. A kernel without that is no worse for the files.
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(writable.iter().cloned().chain(devices), writes))
}

fn told(status: &RestrictionStatus) -> Support {
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            Some(kernel_abi.unwrap_or(effective_abi as i32).unsigned_abs())
        }
        LandlockStatus::NotEnabled => {
            return Support { full: false, abi: None, why_not: Some("Landlock is switched off".into()) };
        }
        _ => {
            let why_not = Some("the kernel has no Landlock (it came with Linux 5.13)".into());
            return Support { full: false, abi: None, why_not };
        }
    };
    let full = status.ruleset != RulesetStatus::NotEnforced && abi >= Some(WRITES as u32);
    let why_not = (!full).then(|| {
        "the kernel's Landlock cannot refuse that files are emptied or moved (that came with Linux 6.2)"
            .into()
    });
    Support { full, abi, why_not }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_confined_command_writes_only_where_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["in", "out"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("out/old"), "old").unwrap();
        fs::write(at("named"), "").unwrap();
        let script = "echo x > in/new; mkdir in/sub; mv in/new in/sub/; cat out/old > in/read; echo x >> named; \
            echo x > /dev/null; echo o; echo e >&2; \
            echo x > out/new; echo x > out/old; rm out/old; mv in/read out/moved; mkdir out/sub; ln out/old in/old; \
            kill -0 $PPID; true";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(dir.path());
        let support = confine(&mut command, &[at("in"), at("named"), at("gone")]).unwrap();
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        if !support.full {
            return;
        }
        assert_eq!(fs::read_to_string(at("in/sub/new")).unwrap(), "x\n");
        assert_eq!(fs::read_to_string(at("in/read")).unwrap(), "old");
        assert_eq!(fs::read_to_string(at("named")).unwrap(), "x\n");
        assert_eq!(out.stdout, b"o\n");
        assert_eq!(fs::read_to_string(at("out/old")).unwrap(), "old");
        assert_eq!(fs::read_dir(at("out")).unwrap().count(), 1);
        assert!(!at("in/old").exists(), "what cannot be written cannot be linked to where it could");
    }
}

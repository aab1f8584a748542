//! The kill domain of one command: all that it started, found again and ended.

use super::unix::Reaper;
use super::{Census, CensusMethod, Cgroup, Ending, Handle, Identity, Proc, Signal, Survivor, sys};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable that marks the processes of one step of one attempt.
pub const MARKER: &str = "WORKSPOOL_ATTEMPT";

/// Descriptors that one round of killing holds open at most.
const HANDLES: usize = 256;
/// How long process numbers cannot have wrapped around.
const SHORT: Duration = Duration::from_secs(1);
/// Names that are kept of the processes that were ended.
const NAMES: usize = 256;

/// The value of [`MARKER`] for one step: no two steps of any spools share one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Marker(String);

impl Marker {
    /// Makes the marker of a step. The spool's id keeps spools on one machine apart.
    pub fn new(spool: &str, task: &str, attempt: u32, step: &str) -> Marker {
        Marker(format!("{spool}/{task}.{attempt}/{step}"))
    }

    /// The value of the variable.
    pub fn value(&self) -> &str {
        &self.0
    }

    fn entry(&self) -> Vec<u8> {
        format!("{MARKER}={}", self.0).into_bytes()
    }
}

/// What an ending left, and whom it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// The last look: empty unless something could not be killed in time.
    pub census: Census,
    /// The processes that were alive at some look (the first 256).
    pub ended: Vec<Survivor>,
}

/// All processes that belong to one command.
#[derive(Debug)]
pub struct Domain {
    marker: Marker,
    /// Members by identity, as recorded or seen: (pid, start).
    known: BTreeSet<(u32, u64)>,
    /// The session of the command, believed only for processes that work in its folder.
    session: Option<(u32, u64, PathBuf)>,
    cgroup: Option<Cgroup>,
    /// Set if all our children and descendants are members: only in a keeper.
    reaper: Option<Reaper>,
    subreaper: bool,
    /// Whether a member was ever seen alive.
    met: bool,
    /// When this domain was made.
    born: Instant,
    /// The number that a process was given last before.
    first: Option<u32>,
}

impl Domain {
    /// Makes the domain of everything that this process starts from now on, and reaps it.
    ///
    /// Only for a process that starts one command and nothing else: it becomes a child subreaper, and
    /// every child of it counts as a member.
    pub fn of_descendants(marker: Marker) -> Domain {
        let mut domain = Domain::recorded(marker);
        domain.subreaper = super::become_subreaper().is_ok();
        domain.reaper = Some(Reaper::default());
        domain.first = sys::last_number();
        domain
    }

    /// Makes the domain of a command whose keeper is dead: known by records and marker only.
    pub fn recorded(marker: Marker) -> Domain {
        Domain {
            marker,
            known: BTreeSet::new(),
            session: None,
            cgroup: None,
            reaper: None,
            subreaper: false,
            met: false,
            born: Instant::now(),
            first: None,
        }
    }

    /// Adds a member that was recorded. One of another boot or pid namespace is not there to be met.
    pub fn know(&mut self, member: &Identity) -> io::Result<()> {
        if member.boot == super::boot_id()? && member.pidns == sys::pid_namespace()? {
            self.known.insert((member.pid, member.start));
        }
        Ok(())
    }

    /// Says which session the command leads and where it works.
    ///
    /// A session number alone could have been given out again; together with the folder it serves to
    /// find children that dropped their environment and lost their parent.
    pub fn know_session(&mut self, leader: &Identity, workspace: &Path) -> io::Result<()> {
        self.know(leader)?;
        if self.known.contains(&(leader.pid, leader.start)) {
            self.session = Some((leader.pid, leader.start, workspace.to_owned()));
        }
        Ok(())
    }

    /// Adds a control group whose members are all ours.
    pub fn set_cgroup(&mut self, cgroup: Option<Cgroup>) {
        self.cgroup = cgroup;
    }

    /// The control group, if there is one.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Keeps the ending of a child of this process until somebody asks.
    pub fn watch(&mut self, pid: u32) {
        if let Some(reaper) = &mut self.reaper {
            reaper.watch(pid);
        }
    }

    /// Reaps children that have ended; says how a watched one ended, if it has.
    pub fn ending(&mut self, pid: u32) -> io::Result<Option<Ending>> {
        let Some(reaper) = &mut self.reaper else { return Ok(None) };
        reaper.reap()?;
        Ok(reaper.ending(pid))
    }

    /// How a census of this domain is made.
    pub fn method(&self) -> CensusMethod {
        match (&self.cgroup, self.subreaper) {
            (Some(_), _) => CensusMethod::Kernel,
            (None, true) => CensusMethod::Subreaper,
            (None, false) => CensusMethod::Scan,
        }
    }

    /// Counts who is alive, and remembers them: what is orphaned later is still known.
    pub fn census(&mut self) -> io::Result<Census> {
        Ok(Census { method: self.method(), survivors: self.members()?.iter().map(survivor).collect() })
    }

    /// Ends everything: TERM to all, `grace`, then STOP and KILL until nothing is left or `limit` is over.
    pub fn end(&mut self, grace: Duration, limit: Duration) -> io::Result<Cleared> {
        self.end_with(grace, limit, &mut |time| std::thread::sleep(time))
    }

    /// Like [`Domain::end`]; `wait` passes the time while processes may still say goodbye.
    pub fn end_with(
        &mut self,
        grace: Duration,
        limit: Duration,
        wait: &mut dyn FnMut(Duration),
    ) -> io::Result<Cleared> {
        let mut ended = BTreeSet::new();
        let begun = Instant::now();
        let mut asked = BTreeSet::new();
        let mut pause = Duration::from_millis(2);
        loop {
            let members = self.members()?;
            note(&mut ended, &members);
            let left = grace.saturating_sub(begun.elapsed());
            if members.is_empty() {
                return Ok(self.cleared(members, ended));
            }
            if left.is_zero() {
                break;
            }
            for member in &members {
                if asked.insert((member.pid, member.start)) {
                    send(member, Signal::TERM);
                    // A stopped process acts on TERM only when it goes on.
                    send(member, Signal::CONT);
                }
            }
            wait(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        let begun = Instant::now();
        loop {
            let members = self.kill_round(&mut ended)?;
            if members.is_empty() || begun.elapsed() >= limit {
                return Ok(self.cleared(members, ended));
            }
            wait(Duration::from_millis(5));
        }
    }

    /// One round of the kill loop; returns who is alive after it.
    ///
    /// Members are stopped until no new one appears, so that none forks away while others are killed.
    fn kill_round(&mut self, ended: &mut BTreeSet<Survivor>) -> io::Result<Vec<Proc>> {
        if let Some(cgroup) = &self.cgroup {
            // The rounds below do without, if it fails.
            let _ = cgroup.kill();
        }
        let mut handles: HashMap<(u32, u64), Handle> = HashMap::new();
        loop {
            let members = self.members()?;
            note(ended, &members);
            let before = handles.len();
            for member in members {
                if handles.len() < HANDLES
                    && !handles.contains_key(&(member.pid, member.start))
                    && let Ok(Some(handle)) = Handle::open(member.pid, member.start)
                {
                    let _ = handle.signal(Signal::STOP);
                    handles.insert((member.pid, member.start), handle);
                }
            }
            if handles.len() == before || handles.len() >= HANDLES {
                break;
            }
        }
        for handle in handles.values() {
            let _ = handle.signal(Signal::KILL);
        }
        let until = Instant::now() + Duration::from_millis(500);
        for handle in handles.values() {
            let _ = handle.wait(until.saturating_duration_since(Instant::now()));
        }
        self.members()
    }

    fn cleared(&self, members: Vec<Proc>, ended: BTreeSet<Survivor>) -> Cleared {
        let survivors = members.iter().map(survivor).collect();
        Cleared {
            census: Census { method: self.method(), survivors },
            ended: ended.into_iter().take(NAMES).collect(),
        }
    }

    /// Looks for members. Never this process, its ancestors, or process 1.
    fn members(&mut self) -> io::Result<Vec<Proc>> {
        for round in 0..100 {
            let children = match &mut self.reaper {
                Some(reaper) => reaper.reap()?,
                None => false,
            };
            let unseen = self.cgroup.as_ref().is_some_and(Cgroup::is_populated);
            if !children && !unseen && self.is_plainly_empty() {
                return Ok(Vec::new());
            }
            let all = sys::all()?;
            let found = self.select(&all);
            let alive: BTreeSet<_> = all.iter().map(|p| (p.pid, p.start)).collect();
            self.known.retain(|k| alive.contains(k));
            self.known.extend(found.iter().map(|p| (p.pid, p.start)));
            self.met |= !found.is_empty();
            // A walk over /proc is no snapshot: a process can fork behind it and exit before it. But the
            // kernel's word on children (and so on descendants, for a subreaper) is exact. Without that
            // word a second look must do.
            let again = self.reaper.is_none() && self.met && round == 0;
            if !found.is_empty() || !(children || unseen || again) {
                return Ok(found);
            }
            std::thread::yield_now();
        }
        let name = "(a process that is not shown to us)".to_owned();
        Ok(vec![Proc { pid: 0, parent: 0, session: 0, start: 0, dead: false, name }])
    }

    /// Whether a subreaper without a child can leave out the walk over all processes.
    ///
    /// The kernel's word covers descendants. A bearer of the marker that is none (a service was asked to start
    /// it) is younger than this domain, and in a short life the numbers since then are few: those are
    /// looked at one by one.
    fn is_plainly_empty(&self) -> bool {
        let entry = self.marker.entry();
        self.subreaper
            && self.reaper.is_some()
            && self.session.is_none()
            && self.known.is_empty()
            && self.born.elapsed() < SHORT
            && self
                .first
                .and_then(sys::numbers_since)
                .is_some_and(|mut young| !young.any(|pid| sys::has_env(pid, &entry)))
    }

    fn select(&self, all: &[Proc]) -> Vec<Proc> {
        let me = std::process::id();
        let by_pid: HashMap<u32, &Proc> = all.iter().map(|p| (p.pid, p)).collect();
        let mut children: HashMap<u32, Vec<&Proc>> = HashMap::new();
        for p in all {
            children.entry(p.parent).or_default().push(p);
        }
        let mut spared = BTreeSet::from([0, 1, me]);
        let mut up = me;
        while let Some(parent) = by_pid.get(&up).map(|p| p.parent).filter(|p| spared.insert(*p)) {
            up = parent;
        }
        let grouped: BTreeSet<u32> = self.cgroup.iter().flat_map(Cgroup::pids).collect();
        let entry = self.marker.entry();
        let is_seed = |p: &&Proc| {
            self.known.contains(&(p.pid, p.start)) || grouped.contains(&p.pid) || self.in_session(p)
        };
        let mut found: BTreeMap<u32, &Proc> = BTreeMap::new();
        let mut todo: Vec<&Proc> = all.iter().filter(is_seed).collect();
        if self.reaper.is_some() {
            todo.extend(children.get(&me).into_iter().flatten());
        }
        let mut marked = false;
        loop {
            while let Some(p) = todo.pop() {
                if !spared.contains(&p.pid) && found.insert(p.pid, p).is_none() {
                    todo.extend(children.get(&p.pid).into_iter().flatten());
                }
            }
            if marked {
                break;
            }
            // Reading environments costs most, so only of those that nothing else has found.
            marked = true;
            let rest = all.iter().filter(|p| !spared.contains(&p.pid) && !found.contains_key(&p.pid));
            todo.extend(rest.filter(|p| sys::has_env(p.pid, &entry)));
        }
        found.into_values().cloned().collect()
    }

    fn in_session(&self, p: &Proc) -> bool {
        self.session.as_ref().is_some_and(|(sid, start, workspace)| {
            p.session == *sid && p.start >= *start && sys::works_in(p.pid, workspace)
        })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }
}

fn survivor(p: &Proc) -> Survivor {
    // A process may give itself any name.
    let command = p.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Survivor { pid: p.pid, start: p.start, command }
}

fn note(ended: &mut BTreeSet<Survivor>, members: &[Proc]) {
    if ended.len() < NAMES {
        ended.extend(members.iter().map(survivor));
    }
}

fn send(member: &Proc, signal: Signal) {
    // Not allowed, or gone meanwhile: the next look shows which.
    if let Ok(Some(handle)) = Handle::open(member.pid, member.start) {
        let _ = handle.signal(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn marked(marker: &str, script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARKER, marker).stdin(Stdio::null()).spawn().unwrap()
    }

    fn unique(step: &str) -> Marker {
        Marker::new(&format!("test-{}", std::process::id()), "t", 1, step)
    }

    #[test]
    fn the_marker_finds_a_tree_and_ends_it_and_spares_another_spool() {
        let (ours, theirs) = (unique("tree"), unique("tree2"));
        let mut child = marked(ours.value(), "trap '' TERM; sleep 60 & sleep 60");
        let mut other = marked(theirs.value(), "exec sleep 60");
        let mut domain = Domain::recorded(ours);
        let seen = super::super::unix::poll_until(Duration::from_secs(10), || {
            Ok(domain.census()?.survivors.len() == 3)
        });
        assert!(seen.unwrap(), "{:?}", domain.census());
        let cleared = domain.end(Duration::from_millis(100), Duration::from_secs(10)).unwrap();
        assert!(cleared.census.is_empty(), "{cleared:?}");
        assert_eq!(cleared.census.method, CensusMethod::Scan);
        assert!(cleared.ended.len() >= 3);
        assert!(!child.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "another spool's process was touched");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_known_identity_is_ended_and_a_forged_one_is_not() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let real = Identity::of(child.id()).unwrap().unwrap();
        let forged = Identity { start: real.start + 1, ..real.clone() };
        let mut domain = Domain::recorded(unique("forged"));
        domain.know(&forged).unwrap();
        assert!(domain.end(Duration::ZERO, Duration::ZERO).unwrap().ended.is_empty());
        domain.know(&Identity { boot: "another".into(), ..real.clone() }).unwrap();
        assert!(domain.end(Duration::ZERO, Duration::ZERO).unwrap().ended.is_empty());
        assert!(child.try_wait().unwrap().is_none());
        domain.know(&real).unwrap();
        let cleared = domain.end(Duration::ZERO, Duration::from_secs(10)).unwrap();
        assert_eq!(cleared.ended.len(), 1);
        child.wait().unwrap();
    }

    #[test]
    fn this_process_and_its_ancestors_are_never_members() {
        let mut domain = Domain::recorded(unique("self"));
        domain.know(&Identity::current().unwrap()).unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
        if let Some(parent) = Identity::of(parent).unwrap() {
            domain.know(&parent).unwrap();
        }
        assert!(domain.census().unwrap().is_empty());
    }

    #[test]
    fn a_stopped_process_is_ended_too() {
        let marker = unique("stopped");
        let mut child = marked(marker.value(), "exec sleep 60");
        Identity::of(child.id()).unwrap().unwrap().signal(Signal::STOP).unwrap();
        let cleared = Domain::recorded(marker).end(Duration::from_secs(10), Duration::ZERO).unwrap();
        assert!(cleared.census.is_empty());
        assert!(!child.wait().unwrap().success());
    }
}

//! Claiming: the next ticket that may run, one rename, one supervisor.
//!
//! All that is needed is in the names of tickets: no file is opened to choose. The lock is held for as long
//! as it takes to count names and to rename one.

use crate::attempt;
use crate::durable;
use crate::model::{Config, Short, State, Task, Ticket, WorkerName};
use crate::spool::{Breaker, Found, Head, LockedTask, Place, Spool, SpoolError, is_empty, names, parsed};
use anyhow::Context as _;
use chrono::{DateTime, Utc};
use std::collections::HashMap;
use std::process::Child;
use std::time::Duration;

/// How many attempts may run at once, and which providers refuse requests.
///
/// Workers that name the same account are one to its provider: they count together, and wait together.
#[derive(Debug)]
struct Limits {
    total: u32,
    repo: u32,
    workers: HashMap<Short, u32>,
    /// The most of all workers of an account.
    accounts: HashMap<String, u32>,
    /// The accounts of workers that name one.
    account_of: HashMap<Short, String>,
    breakers: HashMap<Short, Breaker>,
}

impl Limits {
    fn of(spool: &Spool, config: &Config) -> Self {
        let breakers = spool.tripped().unwrap_or_default();
        let mut limits = Limits {
            total: config.max_concurrency,
            repo: config.repo_concurrency,
            workers: HashMap::new(),
            accounts: HashMap::new(),
            account_of: HashMap::new(),
            breakers,
        };
        for (name, profile) in crate::worker::limited(spool).unwrap_or_default() {
            let worker = Short::of(name.as_str());
            match (profile.account, profile.concurrency) {
                (None, most) => limits.workers.extend(most.map(|most| (worker, most))),
                (Some(account), most) => {
                    let known = limits.accounts.get(&account).copied();
                    let least = known.into_iter().chain(most).min();
                    limits.accounts.extend(least.map(|least| (account.clone(), least)));
                    limits.account_of.insert(worker, account);
                }
            }
        }
        let named = config.worker_concurrency.iter();
        limits.workers.extend(named.map(|(name, most)| (Short::of(name.as_str()), *most)));
        limits
    }

    /// Whether two workers are one to their provider.
    fn share(&self, a: Short, b: Short) -> bool {
        let account = |worker| self.account_of.get(worker);
        a == b || account(&a).is_some_and(|name| account(&b) == Some(name))
    }

    /// The limit of a provider that a ticket has to wait for. Opens its record only where a limit holds.
    fn provider(&self, spool: &Spool, ticket: &Ticket) -> Option<Limit> {
        let mut shared =
            self.breakers.iter().filter(|(worker, _)| self.share(**worker, ticket.worker)).peekable();
        shared.peek()?;
        let model = spool.read_task(ticket.task).ok().and_then(|t| t.spec.model);
        let held = shared.filter(|(_, breaker)| breaker.holds(model.as_deref()));
        held.map(|(_, breaker)| breaker.until).max().map(Limit::Provider)
    }
}

/// The limit of its provider that holds tasks of a worker now, the longest of them: its own, or that of a worker
/// with the same account.
pub fn provider_limit(spool: &Spool, config: &Config, worker: &WorkerName) -> Option<Breaker> {
    let limits = Limits::of(spool, config);
    let worker = Short::of(worker.as_str());
    let shared = limits.breakers.iter().filter(|(known, _)| limits.share(**known, worker));
    shared.map(|(_, breaker)| breaker.clone()).max_by_key(|breaker| breaker.until)
}

/// Whether every one of these queued tickets waits for a provider's limit to lift.
pub(super) fn all_limited(spool: &Spool, config: &Config, queued: &[Ticket]) -> bool {
    let limits = Limits::of(spool, config);
    !limits.breakers.is_empty() && queued.iter().all(|t| limits.provider(spool, t).is_some())
}

/// What runs now, counted from names.
#[derive(Debug, Default)]
struct Running {
    total: u32,
    repos: HashMap<Short, u32>,
    workers: HashMap<Short, u32>,
}

impl Running {
    /// Nothing works for the attempt `over` any more; but its end is not recorded, so that it may still do something
    /// in its repository.
    fn of(tickets: &[Ticket], over: Option<Ticket>) -> Self {
        let mut running = Running::default();
        for ticket in tickets {
            *running.repos.entry(ticket.repo).or_default() += 1;
            if over != Some(*ticket) {
                running.total += 1;
                *running.workers.entry(ticket.worker).or_default() += 1;
            }
        }
        running
    }

    /// The limit that keeps a ticket from running now, if one does.
    fn limit(&self, ticket: &Ticket, limits: &Limits) -> Option<Limit> {
        let at = |map: &HashMap<Short, u32>, key| map.get(&key).copied().unwrap_or(0);
        if self.total >= limits.total {
            return Some(Limit::Total(limits.total));
        }
        if ticket.repo != Short::NONE {
            let most = if ticket.repo.is_directory() { 1 } else { limits.repo };
            if at(&self.repos, ticket.repo) >= most {
                return Some(if ticket.repo.is_directory() {
                    Limit::Directory
                } else {
                    Limit::Repository(most)
                });
            }
        }
        if let Some(most) = limits.workers.get(&ticket.worker)
            && at(&self.workers, ticket.worker) >= *most
        {
            return Some(Limit::Worker(*most));
        }
        let account = limits.account_of.get(&ticket.worker)?;
        let most = *limits.accounts.get(account)?;
        let of_account =
            |(worker, count): (&Short, &u32)| if limits.share(*worker, ticket.worker) { *count } else { 0 };
        let running: u32 = self.workers.iter().map(of_account).sum();
        (running >= most).then(|| Limit::Account(account.clone(), most))
    }
}

/// A limit that is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// Of the spool.
    Total(u32),
    /// Of the repository.
    Repository(u32),
    /// A folder takes one worker at a time.
    Directory,
    /// Of the worker.
    Worker(u32),
    /// Of all workers of an account.
    Account(String, u32),
    /// Of the worker's provider, until this time.
    Provider(DateTime<Utc>),
}

/// Which limit keeps a queued ticket from running now, and how many tickets go before it.
pub fn standing(spool: &Spool, config: &Config, ticket: &Ticket) -> anyhow::Result<(Option<Limit>, usize)> {
    let running = Running::of(&parsed::<Ticket>(&spool.running())?, None);
    let before = parsed::<Ticket>(&spool.queue())?.iter().filter(|t| *t < ticket).count();
    let limits = Limits::of(spool, config);
    let limit = running.limit(ticket, &limits).or_else(|| limits.provider(spool, ticket));
    Ok((limit, before))
}

/// The lock of a supervisor that waits for its turn.
const TURN: &str = "turn";

/// For how long it waits, in ms: an end is recorded sooner.
const PATIENCE_MS: u32 = 40;

/// What claiming, or recovery, came to.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Supervisors that were started, to be reaped.
    pub children: Vec<Child>,
    /// What went wrong with single tickets.
    pub faults: Vec<anyhow::Error>,
    /// Why nothing at all is started, if so.
    pub blocked: Option<String>,
}

/// Claims the next attempt that may run, for a supervisor that has nothing left to do but to record the end of the
/// attempt `over`. What is wrong with single tickets the loop tells.
pub fn next(
    spool: &Spool,
    config: &Config,
    over: Option<Ticket>,
) -> anyhow::Result<Option<(LockedTask, Found)>> {
    // What is cheap to see is looked for first.
    let running = names(&spool.running())?.len().saturating_sub(usize::from(over.is_some()));
    let is_full = running >= config.max_concurrency as usize;
    if is_full || is_empty(&spool.queue())? || reserve(spool, config).is_err() {
        return Ok(None);
    }
    claim_alone(spool, &Limits::of(spool, config), over, &mut Vec::new())
}

/// Claims like [`next`], for a supervisor whose last end is recorded, but waits a moment for its turn: tickets whose end
/// another supervisor is about to record count as running, too. Meanwhile no loop starts a supervisor in its place.
pub fn next_in_turn(spool: &Spool, config: &Config) -> anyhow::Result<Option<(LockedTask, Found)>> {
    let claimed = next(spool, config, None)?;
    if claimed.is_some() || is_empty(&spool.queue())? {
        return Ok(claimed);
    }
    let turn = spool.lock(TURN);
    let _held = turn.take().context("cannot wait for a turn")?;
    for _ in 0..PATIENCE_MS {
        if names(&spool.running())?.len() < config.max_concurrency as usize {
            return next(spool, config, None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

/// Claims what may run and starts a supervisor for each.
pub fn claim(spool: &Spool, config: &Config) -> anyhow::Result<Claimed> {
    let mut claimed = Claimed::default();
    if is_empty(&spool.queue())? || spool.lock(TURN).is_held()? {
        return Ok(claimed);
    }
    if let Err(full) = reserve(spool, config) {
        // Nothing is started that could not be finished; what waits goes on waiting.
        return Ok(Claimed { blocked: Some(full), ..claimed });
    }
    let limits = Limits::of(spool, config);
    loop {
        let next = match claim_alone(spool, &limits, None, &mut claimed.faults) {
            Ok(next) => next,
            // Those that were started are to be reaped all the same.
            Err(e) => {
                claimed.faults.push(e);
                None
            }
        };
        let Some((locked, found)) = next else { return Ok(claimed) };
        let id = locked.id();
        match attempt::spawn(locked, found.ticket.attempt) {
            Ok(child) => claimed.children.push(child),
            // The ticket stays claimed and its lock is free: recovery starts another supervisor.
            Err(e) => {
                claimed.faults.push(e.context(format!("task {id}")));
                return Ok(claimed);
            }
        }
    }
}

fn reserve(spool: &Spool, config: &Config) -> Result<(), String> {
    crate::intake::check_reserve(spool.root(), config.disk.reserve_bytes, config.disk.reserve_percent)
}

fn claim_alone(
    spool: &Spool,
    limits: &Limits,
    over: Option<Ticket>,
    faults: &mut Vec<anyhow::Error>,
) -> anyhow::Result<Option<(LockedTask, Found)>> {
    let lock = spool.lock("claim");
    let alone = lock.take().context("cannot lock for claiming")?;
    let claimed = claim_one(spool, limits, over, faults)?;
    drop(alone);
    // Everybody sees it by now: who claims next need not wait for the disk, too.
    if let Some((locked, found)) = &claimed {
        locked.sync_move(Found { place: Place::Queue, ..*found }, *found)?;
    }
    Ok(claimed)
}

fn claim_one(
    spool: &Spool,
    limits: &Limits,
    over: Option<Ticket>,
    faults: &mut Vec<anyhow::Error>,
) -> anyhow::Result<Option<(LockedTask, Found)>> {
    let running = Running::of(&parsed::<Ticket>(&spool.running())?, over);
    if running.total >= limits.total {
        return Ok(None);
    }
    let head = Head::of(spool)?;
    let is_whole = head.is_whole();
    let claimed = claim_of(head, spool, &running, limits, over, faults);
    match claimed {
        None if !is_whole => Ok(claim_of(Head::list(spool)?, spool, &running, limits, over, faults)),
        claimed => Ok(claimed),
    }
}

/// Claims the first of these tickets that may run.
fn claim_of(
    head: Head,
    spool: &Spool,
    running: &Running,
    limits: &Limits,
    over: Option<Ticket>,
    faults: &mut Vec<anyhow::Error>,
) -> Option<(LockedTask, Found)> {
    // How many from the first on are dealt with, so that nobody needs to look at them again.
    let (mut done, mut all_done) = (0, true);
    let mut claimed = None;
    for ticket in head.tickets() {
        let limit = running.limit(ticket, limits);
        let of_repo = matches!(limit, Some(Limit::Directory | Limit::Repository(_)));
        if of_repo && over.is_some_and(|over| over.repo == ticket.repo) {
            // Its turn comes when that end is recorded: nobody goes before it for that.
            break;
        }
        if limit.is_some() || limits.provider(spool, ticket).is_some() {
            all_done = false;
            continue;
        }
        match claim_ticket(spool, *ticket) {
            Ok(one) => {
                done += usize::from(all_done);
                claimed = one;
            }
            // One task that cannot be claimed does not stop the others.
            Err(e) => {
                all_done = false;
                faults.push(e.context(format!("task {}", ticket.task)));
            }
        }
        if claimed.is_some() {
            break;
        }
    }
    head.taken(done);
    claimed
}

fn claim_ticket(spool: &Spool, ticket: Ticket) -> anyhow::Result<Option<(LockedTask, Found)>> {
    let Some(locked) = spool.try_lock_task(ticket.task)? else { return Ok(None) };
    if !spool.ticket_path(Place::Queue, &ticket).exists() {
        return Ok(None);
    }
    let found = Found { place: Place::Queue, ticket };
    if let Some(result) = spool.result_waits_for(&found)? {
        // Whoever ended it died before the ticket moved.
        locked.end(found, result)?;
        spool.release_dependents(ticket.task)?;
        return Ok(None);
    }
    match locked.task() {
        Ok(task) if ticket.attempt == 1 && expired(&task) => {
            locked.end_without_work(found, State::Expired, None, "expired before it could start")?;
            spool.release_dependents(task.id)?;
            return Ok(None);
        }
        // A record that cannot be read never can be: its supervisor ends the task and says so.
        Ok(_) | Err(SpoolError::Broken(..)) => {}
        Err(e) => return Err(e.into()),
    }
    let found = locked.rename_ticket(found, Place::Running, ticket)?;
    Ok(Some((locked, found)))
}

/// Whether a task may no longer be started.
pub(super) fn expired(task: &Task) -> bool {
    task.expires_at.is_some_and(|at| at <= Utc::now())
}

/// Looks after running tickets that nobody holds: starts another supervisor for each.
///
/// A probe that gets the lock keeps it and hands it on. While a keeper lives the task is healthy: its
/// keeper starts a supervisor itself when it is done.
pub fn recover(spool: &Spool) -> anyhow::Result<Claimed> {
    let mut recovered = Claimed::default();
    for ticket in parsed::<Ticket>(&spool.running())? {
        match recover_one(spool, ticket) {
            Ok(child) => recovered.children.extend(child),
            Err(e) => recovered.faults.push(e.context(format!("task {}", ticket.task))),
        }
    }
    Ok(recovered)
}

fn recover_one(spool: &Spool, ticket: Ticket) -> anyhow::Result<Option<Child>> {
    let Some(locked) = spool.try_lock_task(ticket.task)? else { return Ok(None) };
    if !spool.ticket_path(Place::Running, &ticket).exists() {
        return Ok(None);
    }
    let steps = locked.dir().attempt(ticket.attempt).path().join("steps");
    for step in names(&steps)? {
        if durable::Lock::at(steps.join(step).join("lock")).is_held()? {
            return Ok(None);
        }
    }
    if attempt::GaveUp::read(locked.dir()).is_some_and(|last| !last.pause().is_zero()) {
        return Ok(None);
    }
    attempt::spawn(locked, ticket.attempt).map(Some)
}

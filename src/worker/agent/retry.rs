//! Trying again: how often, and how long to wait.

use super::failure::Failure;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The longest wait that we choose ourselves.
const LONGEST: Duration = Duration::from_secs(30);

/// What is left of the patience with one request.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    tries: u32,
    time: Duration,
    next: Duration,
}

impl Patience {
    /// Makes the patience for one request.
    pub fn new(tries: u32, time: Duration, first: Duration) -> Patience {
        Patience { tries, time, next: first }
    }

    /// How long to wait before the request is tried again; `None` if it is not to be.
    ///
    /// What the server asks for goes before our own growing waits; if it asks for more than is left, waiting
    /// is for somebody who has the time.
    pub fn wait(&mut self, failure: &Failure) -> Option<Duration> {
        if !failure.is_transient() || self.tries == 0 {
            return None;
        }
        let wait = match failure.retry_after {
            Some(asked) => asked + spread(asked.min(Duration::from_secs(1)) / 4),
            None => self.next / 2 + spread(self.next / 2),
        };
        if wait > self.time {
            return None;
        }
        self.tries -= 1;
        self.time -= wait;
        self.next = (self.next * 2).min(LONGEST);
        Some(wait)
    }
}

/// A random part of `most`: runs that failed together should not come back together.
fn spread(most: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) as u32;
    most.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ErrorClass;

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(class: ErrorClass, after: Option<u64>) -> Failure {
        Failure { retry_after: after.map(Duration::from_secs), ..Failure::new(class, "x") }
    }

    #[test]
    fn waits_grow_and_end() {
        let mut patience = Patience::new(4, 60 * SECOND, SECOND);
        let down = failure(ErrorClass::Provider, None);
        let waits: Vec<Duration> = std::iter::from_fn(|| patience.wait(&down)).collect();
        assert_eq!(waits.len(), 4);
        for (k, wait) in waits.iter().enumerate() {
            let full = SECOND * (1 << k);
            assert!(*wait >= full / 2 && *wait <= full, "{waits:?}");
        }
    }

    #[test]
    fn the_server_says_how_long_unless_it_is_too_long() {
        let mut patience = Patience::new(9, 10 * SECOND, SECOND);
        let wait = patience.wait(&failure(ErrorClass::RateLimited, Some(7))).unwrap();
        assert!(wait >= 7 * SECOND && wait < 8 * SECOND);
        assert_eq!(patience.wait(&failure(ErrorClass::RateLimited, Some(7))), None, "the time is used up");
        assert_eq!(patience.wait(&failure(ErrorClass::RateLimited, Some(3600))), None);
        assert!(patience.wait(&failure(ErrorClass::RateLimited, Some(0))).is_some());
    }

    #[test]
    fn what_will_not_pass_is_not_tried_again() {
        let mut patience = Patience::new(9, 10 * SECOND, SECOND);
        for class in
            [ErrorClass::Auth, ErrorClass::Quota, ErrorClass::InvalidRequest, ErrorClass::ContextFull]
        {
            assert_eq!(patience.wait(&failure(class, None)), None);
        }
        let told = Failure { may_retry: Some(false), ..failure(ErrorClass::Provider, None) };
        assert_eq!(patience.wait(&told), None);
    }
}

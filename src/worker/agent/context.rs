//! The size of the conversation, and how it is made to fit.

use super::conversation::Item;
use crate::model::Usage;

/// Tokens a byte, until an answer has told: on the careful side for code.
const GUESS: f64 = 0.33;
/// Tokens a byte that even plain prose costs: what does not fit at this rate fits at none.
const LEAST: f64 = 0.15;
/// Results up to this size are never shortened.
const SMALL: usize = 600;
/// What is left of the beginning of a shortened result.
const KEPT: usize = 200;
/// The latest items, which the model is working with.
const RECENT: usize = 6;

/// Keeps the conversation within what the model can read.
#[derive(Debug)]
pub(super) struct Context {
    /// What the model can read at once, less the room for its answer.
    limit: f64,
    /// Tokens a byte, as the provider counted last.
    rate: f64,
    /// Whether the provider has counted yet.
    learned: bool,
    /// Bytes of every request besides the conversation.
    fixed: usize,
}

impl Context {
    /// Makes it for a model that reads `tokens` and writes `output`; `fixed` bytes go with every request.
    pub fn new(tokens: u64, output: u32, fixed: usize) -> Context {
        let room = tokens.saturating_sub(u64::from(output));
        Context { limit: room as f64, rate: GUESS, learned: false, fixed }
    }

    /// Learns from what the provider counted for `items`.
    pub fn learn(&mut self, items: &[Item], usage: &Usage) {
        let (Some(read), bytes) = (usage.input_tokens, self.bytes(items)) else { return };
        let tokens = read.saturating_add(usage.cached_tokens.unwrap_or(0));
        if tokens > 0 && bytes > 0 {
            // A nonsense figure must not stop a run.
            self.rate = (tokens as f64 / bytes as f64).clamp(0.1, 1.0);
            self.learned = true;
        }
    }

    /// Shortens old results until the conversation fits; says whether it does, or may as far as we can tell.
    pub fn fit(&self, items: &mut [Item]) -> bool {
        while !self.fits(items) {
            let old = items.len().saturating_sub(RECENT);
            if !items[..old].iter_mut().any(shorten) {
                // Nothing is refused on a guess.
                return !self.learned && self.bytes(items) as f64 * LEAST <= self.limit;
            }
        }
        true
    }

    /// Shortens every old result, since the provider said that the conversation does not fit. Says whether
    /// there was anything to shorten.
    pub fn shrink(&self, items: &mut [Item]) -> bool {
        // By the provider's word even recent results may have to go, but not the very last.
        for recent in [RECENT, 1] {
            let old = items.len().saturating_sub(recent);
            if items[..old].iter_mut().map(shorten).filter(|cut| *cut).count() > 0 {
                return true;
            }
        }
        false
    }

    fn fits(&self, items: &[Item]) -> bool {
        self.bytes(items) as f64 * self.rate <= self.limit
    }

    fn bytes(&self, items: &[Item]) -> usize {
        self.fixed + items.iter().map(Item::bytes).sum::<usize>()
    }
}

/// Cuts a result down to its beginning; says whether there was anything to cut.
fn shorten(item: &mut Item) -> bool {
    let Item::Result { output, .. } = item else { return false };
    if output.len() <= SMALL {
        return false;
    }
    let end = super::super::json::clip(output, KEPT).len();
    let left_out = output.len() - end;
    output.truncate(end);
    output.push_str(&format!("\n[{left_out} bytes of this old result were left out to save room; call the tool again if you need them]"));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(bytes: usize) -> Item {
        Item::Result { call: "c".into(), name: "read_file".into(), output: "ä".repeat(bytes / 2), ok: true }
    }

    fn shortened(items: &[Item]) -> Vec<bool> {
        items
            .iter()
            .map(|i| matches!(i, Item::Result { output, .. } if output.contains("left out")))
            .collect()
    }

    #[test]
    fn the_oldest_results_go_first_and_the_latest_stay() {
        let mut items: Vec<Item> = (0..10).map(|_| result(3000)).collect();
        let context = Context::new(9_000, 1_000, 0);
        assert!(context.fit(&mut items));
        let mut want = [false; 10];
        want[..3].fill(true);
        assert_eq!(shortened(&items), want);
    }

    #[test]
    fn what_cannot_fit_is_said() {
        let context = Context::new(2_000, 1_000, 0);
        let mut items = vec![Item::user("x".repeat(10_000))];
        assert!(!context.fit(&mut items));
        assert!(context.fit(&mut [Item::user("x".repeat(5_000))]), "a guess is no reason to refuse");
        let mut recent: Vec<Item> = (0..RECENT).map(|_| result(3000)).collect();
        assert!(!context.fit(&mut recent));
        assert!(context.shrink(&mut recent), "at the provider's word");
        assert_eq!(shortened(&recent), [true, true, true, true, true, false]);
        assert!(!context.shrink(&mut recent));
    }

    #[test]
    fn the_provider_counts_better_than_we_guess() {
        let mut context = Context::new(100_000, 1_000, 1_000);
        let items = vec![Item::user("x".repeat(200_000))];
        assert!(context.fits(&items));
        let usage = Usage { input_tokens: Some(90_000), cached_tokens: Some(30_000), ..Usage::default() };
        context.learn(&items, &usage);
        assert!(!context.fits(&items));
        context.learn(&items, &Usage::default());
        assert!(!context.fits(&items), "no figure, nothing learned");
    }
}

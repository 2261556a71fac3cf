//! Words that many objects have in common, such as the names of classes and namespaces.

use std::collections::HashSet;
use std::sync::Arc;

/// The words that are in use. Each is kept once.
#[derive(Debug, Default)]
pub struct Words(HashSet<Arc<str>>);

impl Words {
    /// Returns the kept word that equals this text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let word: Arc<str> = text.into();
        self.0.insert(word.clone());
        word
    }

    /// Forgets a word that its last user gives back.
    pub fn release(&mut self, word: Arc<str>) {
        // This one, and the one of the set.
        if Arc::strong_count(&word) <= 2 {
            self.0.remove(&word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_kept_once_and_as_long_as_it_is_in_use() {
        let mut words = Words::default();
        let (first, second) = (words.share("team"), words.share("team"));
        assert!(Arc::ptr_eq(&first, &second));
        words.release(first);
        assert!(Arc::ptr_eq(&second, &words.share("team")));
        words.release(second);
        assert!(words.0.is_empty());
    }
}

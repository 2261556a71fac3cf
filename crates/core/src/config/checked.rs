//! The check of an effective config. Each is checked only once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::check;
use super::effective_config::EffectiveConfig;
use super::{Problem, Recipe};

/// The result of a check.
pub type Checked = Result<Arc<Recipe>, Vec<Problem>>;

/// The largest number of remembered results. It is more than the recipes of a cluster and of its volumes.
const REMEMBERED: usize = 512;

thread_local! {
    /// The results of checked configs. A result follows from its config alone, so that losing it costs only time.
    static CHECKED: RefCell<HashMap<EffectiveConfig, Checked>> = RefCell::default();
}

impl EffectiveConfig {
    /// Checks the config and returns its recipe.
    pub fn recipe(&self) -> Result<Recipe, Vec<Problem>> {
        check::parse(self.clone())
    }

    /// Returns the same, and checks each config only once.
    pub fn checked(&self) -> Checked {
        if let Some(known) = CHECKED.with_borrow(|known| known.get(self).cloned()) {
            return known;
        }
        let checked = self.recipe().map(Arc::new);
        CHECKED.with_borrow_mut(|known| {
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(self.clone(), checked.clone());
        });
        checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective_config(image: &str) -> EffectiveConfig {
        let data = [("image".to_owned(), image.to_owned())].into();
        EffectiveConfig { class: "silver".into(), data, ..EffectiveConfig::default() }
    }

    #[test]
    fn a_checked_config_is_recorded_unchanged() {
        let (one, other) = (effective_config("one"), effective_config("other"));
        let first = one.checked().unwrap();
        assert!(Arc::ptr_eq(&first, &one.clone().checked().unwrap()));
        assert_eq!(*first, one.recipe().unwrap());
        assert_eq!(*other.checked().unwrap(), other.recipe().unwrap());
        for _ in 0..2 {
            assert_eq!(effective_config("").checked().unwrap_err(), effective_config("").recipe().unwrap_err());
        }
    }

    #[test]
    fn the_memory_of_checked_configs_is_bounded() {
        for number in 0..=REMEMBERED {
            effective_config(&number.to_string()).checked().unwrap();
        }
        assert_eq!(CHECKED.with_borrow(HashMap::len), 1);
        assert_eq!(*effective_config("0").checked().unwrap(), effective_config("0").recipe().unwrap());
    }
}

//! The values of parameters and Secrets, and settings with other ones.

use std::sync::Arc;

use flex_core::config::{joined, keys};

use crate::setting::Setting;

impl Setting {
    /// Returns the value of a parameter, or of a key of a Secret in the file.
    pub fn value_of(&self, name: &str) -> Option<String> {
        let effective = &self.recipe.effective_config;
        let of_config = effective.data.get(name).filter(|_| !keys::is_key(name));
        let of_class = effective.parameters.get(name);
        let of_secret = self.secrets.values().find_map(|data| data.get(name));
        of_config.or(of_class).or(of_secret).cloned()
    }

    /// Returns the same setting with other values of these parameters and keys of Secrets.
    ///
    /// # Errors
    /// If the config is refused with these values.
    pub fn with_values(&self, values: &[(String, String)]) -> Result<Self, String> {
        let mut setting = self.clone();
        let mut effective = self.recipe.effective_config.clone();
        for (name, value) in values {
            let of_config = effective.data.get_mut(name).filter(|_| !keys::is_key(name));
            let of_class = effective.parameters.get_mut(name);
            let of_secret = setting.secrets.values_mut().find_map(|data| data.get_mut(name));
            if let Some(old) = of_config.or(of_class).or(of_secret) {
                value.clone_into(old);
            }
        }
        let recipe = effective.recipe().map_err(|problems| joined(&problems))?;
        setting.recipe = Arc::new(recipe);
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    use crate::setting::tests::{config, read};

    #[test]
    fn parameters_and_secrets_are_found_and_changed() {
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {ENDPOINT: 'http://b:2'}\n";
        let text = config("a", "image: i, secret-env: s, array-url: 'http://a:1'") + secret;
        let setting = read(&text, None).unwrap();
        let pairs = |values: [(&str, &str); 2]| values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (name, value) in [("array-url", Some("http://a:1")), ("ENDPOINT", Some("http://b:2")), ("image", None)] {
            assert_eq!(setting.value_of(name).as_deref(), value, "{name}");
        }
        let changed = setting.with_values(&pairs([("array-url", "http://c:3"), ("ENDPOINT", "http://d:4")])).unwrap();
        assert_eq!(changed.value_of("array-url").as_deref(), Some("http://c:3"));
        assert_eq!(changed.recipe.parameters["array-url"], "http://c:3");
        assert_eq!(changed.secrets["s"]["ENDPOINT"], "http://d:4");
        assert_eq!(setting.value_of("ENDPOINT").as_deref(), Some("http://b:2"));
    }
}

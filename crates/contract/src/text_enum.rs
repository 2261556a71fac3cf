//! Enums whose texts Kubernetes writes, and may extend.

/// Declares an enum with a text for each variant, and the variant `Other` for every other text. So a text of a later
/// Kubernetes is kept, and equals no known one.
#[macro_export]
macro_rules! text_enum {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of_variant])* $variant,)+
            /// Any other text, cut.
            Other(String),
        }

        impl $name {
            /// Returns the text in the objects of Kubernetes.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => $name::$variant,)+
                    other => $name::Other(other.chars().take(64).collect()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    text_enum! {
        /// A fruit.
        #[derive(Default)]
        pub enum Fruit {
            /// None yet.
            #[default]
            Unset = "",
            /// An apple.
            Apple = "Apple",
        }
    }

    #[test]
    fn each_text_is_kept() {
        for text in ["", "Apple", "apple", "Pear"] {
            assert_eq!((Fruit::from(text).as_str(), Fruit::from(text).to_string()), (text, text.to_owned()));
        }
        assert_eq!([Fruit::from("Apple"), Fruit::from("")], [Fruit::Apple, Fruit::default()]);
        assert_eq!(Fruit::from("apple"), Fruit::Other("apple".into()));
        assert_eq!(Fruit::from("ß".repeat(1000).as_str()).as_str(), "ß".repeat(64), "the API bounds no such text");
    }
}

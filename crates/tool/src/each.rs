//! Work on many objects: one that fails stops no other.

use anyhow::bail;
use flex_provisioner::api::says;

/// Does the work for each item.
///
/// # Errors
/// If the work for an item has failed. The message has each of them, and all others are done.
pub(super) async fn each<T>(
    items: impl IntoIterator<Item = T>,
    mut work: impl AsyncFnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for item in items {
        failed.extend(work(item).await.err().map(|error| says::causes(&error)));
    }
    match failed.as_slice() {
        [] => Ok(()),
        [one] => bail!("{one}"),
        many => bail!("{} objects have failed, and all others are done:\n{}", many.len(), many.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_fails_stops_no_other() {
        for (bad, says) in [
            (&[][..], ""),
            (&["a"], "a cannot be done: it is gone"),
            (&["a", "c"], "2 objects have failed, and all others are done:\na cannot be done: it is gone\nc cannot"),
        ] {
            let mut done = Vec::new();
            let outcome = each(["a", "b", "c", "d"], async |item| {
                done.push(item);
                match bad.contains(&item) {
                    true => Err(anyhow::anyhow!("it is gone").context(format!("{item} cannot be done"))),
                    false => Ok(()),
                }
            })
            .await;
            assert_eq!(done, ["a", "b", "c", "d"]);
            let message = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.starts_with(says) && message.is_empty() == bad.is_empty(), "{message}");
        }
    }
}

//! The check of the key `resources`: it refuses values that the API server would refuse in each Job.

use flex_contract::quantity;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::config::values::known_yaml;

/// Reads the resources of the container.
pub(super) fn resources(text: &str) -> Result<ResourceRequirements, String> {
    let resources: ResourceRequirements = known_yaml(text)?;
    for (list, quantities) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, quantity) in quantities.iter().flatten() {
            if !is_resource(name) {
                return Err(format!(
                    "`{list}` names `{name}`, which is not a resource: write cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain such as example.com/gpu"
                ));
            }
            amount(name, quantity).map_err(|why| format!("`{name}` in `{list}`: {why}"))?;
        }
    }
    let limits = resources.limits.iter().flatten();
    let larger = limits.filter_map(|(name, limit)| {
        let request = resources.requests.as_ref()?.get(name)?;
        (amount(name, request).ok()? > amount(name, limit).ok()?).then_some((name, request, limit))
    });
    if let Some((name, request, limit)) = larger.into_iter().next() {
        return Err(format!(
            "requests more {name} ({}) than it is limited to ({}): raise the limit",
            request.0, limit.0
        ));
    }
    Ok(resources)
}

fn is_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") || name.contains('/')
}

/// Returns an amount in whole units; of processors in thousandths.
fn amount(name: &str, quantity: &Quantity) -> Result<u64, String> {
    let text = quantity.0.as_str();
    let whole = quantity::bytes(text).map_err(|error| match error {
        quantity::QuantityError::Syntax(_) if name == "cpu" => {
            format!("`{text}` is not a number of processors: write for example 100m, 0.5 or 2")
        }
        error => error.to_string(),
    })?;
    if name != "cpu" {
        return Ok(whole);
    }
    match text.strip_suffix('m') {
        Some(thousandths) => quantity::bytes(thousandths).map_err(|error| error.to_string()),
        None => Ok(text
            .parse::<f64>()
            .map_or_else(|_| whole.saturating_mul(1000), |number| (number * 1000.0).round() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_resources_of_a_job_are_refused() {
        for good in [
            "{}",
            "requests: {cpu: 10m, memory: 32Mi}",
            "{requests: {cpu: 0.5, ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1}, limits: {cpu: 500m}}",
            "{requests: {memory: 1e6}, limits: {memory: 1M}}",
        ] {
            assert!(resources(good).is_ok(), "{good}: {:?}", resources(good));
        }
        for (bad, why) in [
            ("requests: {memory: 32MB}", "`32MB` is not a size"),
            ("requests: {memroy: 32Mi}", "`memroy`"),
            ("limits: {cpu: 2 cores}", "not a number of processors"),
            ("limits: {cpu: -1}", "negative"),
            ("{requests: {memory: 64Mi}, limits: {memory: 32Mi}}", "requests more memory (64Mi)"),
            ("{requests: {cpu: 200m}, limits: {cpu: 0.1}}", "requests more cpu (200m)"),
            ("{requests: {cpu: 8E}, limits: {cpu: 2}}", "requests more cpu (8E)"),
        ] {
            let error = resources(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}

"use strict";

// Reads this page again every few seconds, and replaces the parts that change. Does nothing while nobody looks, and
// while the reader has selected text.
(() => {
  const EVERY = 5000;
  const parser = new DOMParser();
  const status = document.getElementById("refresh");

  const isBusy = () => document.hidden || !document.getSelection().isCollapsed;

  const replace = (page) => {
    const next = page.querySelectorAll("[data-live]");
    document.querySelectorAll("[data-live]").forEach((old, at) => {
      if (!next[at] || old.isEqualNode(next[at])) return;
      // A link that has the focus keeps it.
      const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      old.replaceWith(document.adoptNode(next[at]));
      if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    });
  };

  const refresh = async () => {
    if (isBusy()) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(EVERY) });
      if (!answer.ok) throw new Error(answer.statusText);
      replace(parser.parseFromString(await answer.text(), "text/html"));
      status.textContent = `Refreshed at ${new Date().toLocaleTimeString()}, and every ${EVERY / 1000} s.`;
    } catch {
      status.textContent = "The orchestrator does not answer. This page shows what it said last.";
    }
  };

  status.textContent = `Refreshes every ${EVERY / 1000} s.`;
  setInterval(refresh, EVERY);
  document.addEventListener("visibilitychange", refresh);
})();

// A page of another site has the link that led here, so the browser has withheld the cookie (SameSite=Strict). It gets
// this script, and the page itself when it is loaded again, with the cookie; without one, neither.
if (performance.getEntriesByType("navigation")[0]?.type !== "reload") location.reload();

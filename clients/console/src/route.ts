/** The place in the page: the fragment of the address, such as `#/views/Volume`. It never has a token. */

import { useEffect, useState } from "preact/hooks";

export interface Route {
  readonly page: string;
  readonly name: string | null;
}

export function parseRoute(fragment: string): Route {
  const [page = "", name] = fragment.replace(/^#\/?/, "").split("/");
  try {
    return { page: page || "views", name: name ? decodeURIComponent(name) : null };
  } catch {
    return { page: "views", name: null };
  }
}

export function routeTo(page: string, name?: string): string {
  return `#/${page}${name === undefined ? "" : `/${encodeURIComponent(name)}`}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const update = () => setRoute(parseRoute(location.hash));
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return route;
}

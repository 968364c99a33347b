/** Light or dark: as the system says, or as the user chooses. */

import { useEffect, useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";

export const THEME_WORDS: Record<Theme, string> = { system: "Auto", light: "Light", dark: "Dark" };

const KEY = "smile.theme";

export function nextTheme(theme: Theme): Theme {
  return theme === "system" ? "light" : theme === "light" ? "dark" : "system";
}

/** The attribute on the root decides, so that style sheet and charts need to look at one place. */
export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      document.documentElement.dataset["theme"] = theme === "system" ? (media.matches ? "dark" : "light") : theme;
    };
    apply();
    localStorage.setItem(KEY, theme);
    media.addEventListener("change", apply);
    return () => media.removeEventListener("change", apply);
  }, [theme]);
  return [theme, setTheme];
}

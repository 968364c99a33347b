/** The frame around all pages: navigation, state of the connection, sign-in, tour. */

import { useEffect, useState } from "preact/hooks";
import { BrokerContext, storedToken, storeToken, useConnection, type Broker } from "./broker.ts";
import { Logo, SignIn } from "./components/sign-in.tsx";
import { TourPanel, useTour } from "./components/tour.tsx";
import { AskPage } from "./pages/ask.tsx";
import { OperationsPage } from "./pages/operations.tsx";
import { ProgramPage } from "./pages/program.tsx";
import { StreamPage, StreamsPage } from "./pages/streams.tsx";
import { ViewPage, type Focus } from "./pages/view.tsx";
import { ViewsPage } from "./pages/views.tsx";
import { routeTo, useRoute, type Route } from "./route.ts";
import { nextTheme, THEME_WORDS, useTheme } from "./theme.ts";

const PAGES = [
  { id: "views", label: "Views", icon: "M3 5h18v4H3zM3 11h8v8H3zM13 11h8v8h-8z" },
  { id: "streams", label: "Streams", icon: "M3 6c4 0 5 4 9 4s5-4 9-4v3c-4 0-5 4-9 4s-5-4-9-4zM3 14c4 0 5 4 9 4s5-4 9-4v3c-4 0-5 4-9 4s-5-4-9-4z" },
  { id: "program", label: "Program", icon: "M4 4h6v5H4zM14 9h6v5h-6zM4 15h6v5H4zM10 6h3v5h1v2h-2V8h-2zM10 17h4v-3h2v5h-6z" },
  { id: "ask", label: "Ask", icon: "M4 4h16v12H10l-5 4v-4H4zM8 8v2h8V8zM8 11.500v2h5v-2z" },
  { id: "operations", label: "Operations", icon: "M4 20V10h4v10zM10 20V4h4v16zM16 20v-7h4v7z" },
];

export function App() {
  const [token, setToken] = useState(storedToken());
  const broker = useConnection(token);
  const changeToken = (next: string | undefined) => {
    storeToken(next);
    setToken(next);
  };
  if (broker === null) return null;
  if (broker.state === "refused" && broker.problem) {
    return <SignIn problem={broker.problem} hadToken={token !== undefined} onToken={changeToken} />;
  }
  return (
    <BrokerContext.Provider value={broker}>
      <Shell broker={broker} onSignOut={token === undefined ? null : () => changeToken(undefined)} />
    </BrokerContext.Provider>
  );
}

function Shell({ broker, onSignOut }: { broker: Broker; onSignOut: (() => void) | null }) {
  const route = useRoute();
  const tour = useTour(route);
  useTitle(route);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
      <nav class="nav" aria-label="Pages">
        <a class="brand" href={routeTo("views")}><Logo /><span>SMILE</span></a>
        <ul>
          {PAGES.map((page) => (
            <li>
              <a href={routeTo(page.id)} aria-current={route.page === page.id ? "page" : undefined}>
                <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><path d={page.icon} /></svg>
                <span>{page.label}</span>
              </a>
            </li>
          ))}
          {tour.tour && (
            <li>
              <button type="button" class="nav-button" aria-pressed={tour.isOpen} onClick={() => tour.open(!tour.isOpen)}>
                <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><path d="M5 3h2v18H5zM8 4h11l-3 4 3 4H8z" /></svg>
                <span>Tour</span>
              </button>
            </li>
          )}
        </ul>
        <div class="nav-end">
          <ConnectionMark broker={broker} />
          <ThemeButton />
          {onSignOut && <button type="button" class="quiet" onClick={onSignOut}>Sign out</button>}
        </div>
      </nav>
      <div class="stage">
        {tour.isOpen && <TourPanel state={tour} />}
        <main id="main" tabIndex={-1}>
          {broker.state === "away" && (
            <p class="away-note" role="alert">The broker is away. What you see was true when it left; this page continues by itself when it is back.</p>
          )}
          <Page route={route} focus={tour.focus} />
        </main>
      </div>
    </div>
  );
}

function Page({ route, focus }: { route: Route; focus: Focus | null }) {
  const { page, name } = route;
  if (page === "views") return name === null ? <ViewsPage /> : <ViewPage key={name} name={name} focus={focus} />;
  if (page === "streams") return name === null ? <StreamsPage /> : <StreamPage key={name} name={name} />;
  if (page === "program") return <ProgramPage />;
  if (page === "ask") return <AskPage initial={name} />;
  if (page === "operations") return <OperationsPage />;
  return <div class="page"><h1>There is no such page</h1><p><a href={routeTo("views")}>To the views</a></p></div>;
}

function ConnectionMark({ broker }: { broker: Broker }) {
  const words = { connecting: "connecting", connected: "live", away: "away", refused: "refused" };
  return <span class={`connection ${broker.state}`} role="status" title={broker.problem?.message}><i aria-hidden="true" />{words[broker.state]}</span>;
}

function ThemeButton() {
  const [theme, setTheme] = useTheme();
  return (
    <button type="button" class="quiet" onClick={() => setTheme(nextTheme(theme))} aria-label={`Colours: ${THEME_WORDS[theme]}`}>
      {THEME_WORDS[theme]}
    </button>
  );
}

function useTitle(route: Route): void {
  useEffect(() => {
    const page = PAGES.find((item) => item.id === route.page)?.label ?? "";
    document.title = `${route.name ?? page} · SMILE`;
  }, [route]);
}

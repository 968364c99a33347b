/** Downloads the rows of a view. The token is sent as a header, so a plain link would not do. */

import { useAction, useBroker } from "../broker.ts";
import { Problem } from "./basics.tsx";

const FORMATS = { csv: "CSV", arrow: "Arrow" } as const;

export function DownloadMenu({ view, name, where }: { view: string; name: string; where: Record<string, unknown> }) {
  const { client } = useBroker();
  const { run, isBusy, problem } = useAction(async (format: string) => {
    const query = new URLSearchParams({ format });
    if (format === "csv") query.set("times", "true");
    for (const [name, value] of Object.entries(where)) query.set(`where.${name}`, String(value));
    const response = await client.request(`/views/${encodeURIComponent(view)}?${query.toString()}`);
    saveFile(await response.blob(), `${name}.${format}`);
  });
  return (
    <span class="downloads">
      {Object.entries(FORMATS).map(([format, label]) => (
        <button type="button" disabled={isBusy} onClick={() => void run(format)} aria-label={`Download as ${label}`}>
          ↓ {label}
        </button>
      ))}
      <Problem problem={problem} />
    </span>
  );
}

function saveFile(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Requests over HTTP. */

import { connectionError, decodeError, type SmileError } from "./errors.js";
import { parseJson } from "./values.js";

export interface Address {
  /** Without a slash at the end. */
  readonly url: string;
  readonly token: string | null;
}

export interface RequestOptions {
  readonly method?: string;
  readonly body?: string;
  readonly contentType?: string;
  readonly accept?: string;
  readonly signal?: AbortSignal;
}

/** Throws a `SmileError` with the broker's code if the response is one, and E103 if there is none. */
export async function request(address: Address, path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  if (address.token !== null) headers["Authorization"] = `Bearer ${address.token}`;
  if (options.contentType !== undefined) headers["Content-Type"] = options.contentType;
  if (options.accept !== undefined) headers["Accept"] = options.accept;
  let response: Response;
  try {
    response = await fetch(`${address.url}${path}`, {
      method: options.method ?? "GET",
      headers,
      cache: "no-store",
      ...(options.body === undefined ? {} : { body: options.body }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  } catch (problem) {
    if (options.signal?.aborted) throw problem;
    throw connectionError(`${address.url}: the broker cannot be reached`, "Is it running?");
  }
  if (!response.ok) throw await responseError(response);
  return response;
}

export async function requestJson<T>(address: Address, path: string, options: RequestOptions = {}): Promise<T> {
  return parseJson(await (await request(address, path, options)).text()) as T;
}

async function responseError(response: Response): Promise<SmileError> {
  let body: { error?: object; errors?: object } = {};
  try {
    body = (await response.json()) as typeof body;
  } catch {
    // It is not an answer of a broker: the status says what there is to say.
  }
  if (body.error) return decodeError({ ...body.error, ...(body.errors ? { errors: body.errors } : {}) }, response.status);
  const message = `the answer has the status ${response.status}, and is not that of a broker`;
  return decodeError({ code: "E103", message }, response.status);
}

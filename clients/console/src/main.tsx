import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/table.css";
import "./style/pages.css";
import { render } from "preact";
import { App } from "./app.tsx";

const root = document.getElementById("app")!;
root.textContent = "";
render(<App />, root);

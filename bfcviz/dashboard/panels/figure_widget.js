// A figure that shares plotly's script (5 MB) with others: a kernel sends it once, and a page evaluates it once.
//
// The script is in a widget of its own, see bfcviz/dashboard/panels/figure_widget.py. A page may show notebooks with
// different versions of plotly: the digest of the script says which is meant.

const evaluated = (globalThis.bfcvizPlotly ??= new Map()); // digest -> promise of the module

async function shared_plotly(model) {
  const shared = await model.widget_manager.get_model(model.get("_script_model_id"));
  const digest = shared.get("digest");
  if (!evaluated.has(digest)) evaluated.set(digest, evaluate(digest, shared.get("script")));
  return evaluated.get(digest);
}

async function evaluate(digest, script) {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  try {
    return await import(url);
  } catch (error) {
    evaluated.delete(digest); // the next figure tries again
    throw error;
  } finally {
    URL.revokeObjectURL(url);
  }
}

export default () => {
  let figure = null; // plotly's widget
  return {
    async initialize(context) {
      figure = (await shared_plotly(context.model)).default();
      return figure.initialize(context);
    },
    render(context) {
      return figure.render(context);
    },
  };
};

// SPDX-License-Identifier: Apache-2.0
//
// Models, explanations and lessons for Python. Results are available as text, JSON and a page, as in the program.
//
//     model = regard.load_model(folder)            regard.explain("he sat on the bank", model=model, query="bank")
//     regard.embed(model, texts)                   regard.compare(model, "bank", ["he sat …", "she put …"])
//     regard.lesson("three-words")                         regard.explain({"tokens": […], "Q": [[…], …], …})
//
// Absent if the package was built without regard::explain. Read next: regard/explain/steps.h,
// regard/explain/sentence_report.h.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "arrays.h"
#include "module.h"
#include "regard/explain/compare.h"
#include "regard/explain/lesson.h"
#include "regard/explain/sentence_html.h"
#include "regard/explain/steps.h"
#include "regard/model/embed.h"
#include "run.h"

namespace regard::python {
namespace {

struct Analysis {
  SentenceModel model;
  SentenceAnalysis analysis;
};

// Matrices and settings as JSON: a string is returned unchanged; any other object is encoded by Python's json module.
std::string json_of(nb::handle input) {
  if (PyUnicode_Check(input.ptr())) {
    std::string text = text_of("explain", "input", input);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] != '{' && text[first] != '[') {
      reject("explain",
             "input is text that is not JSON; expected matrices as JSON, or a sentence "
             "with model=regard.load_model(folder)");
    }
    return text;
  }
  try {
    // iterencode() returns the text in pieces, between which Python handles signals. json.dumps() does not.
    const nb::object encoder = nb::module_::import_("json").attr("JSONEncoder")(nb::arg("allow_nan") = false);
    return text_of("explain", "input", nb::str("").attr("join")(encoder.attr("iterencode")(input)));
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    const std::string why = nb::str(error.value()).c_str();
    PyErr_SetString(PyExc_TypeError, ("explain: input contains a value that JSON cannot represent: " + why +
                                      " (for arrays, use .tolist())")
                                         .c_str());
    throw nb::python_error();
  }
}

// If the input is not a string, messages omit offsets, because these refer to JSON that the caller did not write.
ExplainInput input_of(nb::handle input) {
  const std::string json = json_of(input);
  std::optional<ExplainInput> read;
  try {
    run(kUnknownOperations, 0,
        [&](const Runtime& runtime) { read = read_explain_input(json, "explain", runtime.stop); });
    return std::move(*read);
  } catch (const std::runtime_error& error) {
    if (PyUnicode_Check(input.ptr())) throw;
    const std::string text = error.what();
    const std::size_t offset = text.find(": byte "), end = text.find(": ", offset + 2);
    if (offset == std::string::npos || end == std::string::npos) throw;
    throw std::invalid_argument(text.substr(0, offset) + text.substr(end));
  }
}

template <class Render>
std::string rendered(const Render& render) {
  std::string text;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) { text = render(runtime); });
  return text;
}

nb::object explain_of(nb::handle input, const SentenceModel* model, std::optional<std::string> query,
                      std::optional<Index> layer, std::optional<Index> head, std::vector<std::string> hide,
                      bool truncate, bool full) {
  if (model != nullptr) {
    SentenceAnalysisOptions options;
    options.query = query.value_or("");
    options.layer = layer;
    options.head = head;
    options.hide = std::move(hide);
    options.truncate = truncate;
    options.full = full;
    const std::string text = text_of("explain", "input with a model", input);
    std::optional<Analysis> analysis;
    run(kUnknownOperations, 0,
        [&](const Runtime& runtime) { analysis = {*model, analyze_sentence(*model, text, options, runtime)}; });
    return nb::cast(std::move(*analysis));
  }
  if (layer || head || !hide.empty() || truncate || full) {
    reject("explain", "layer, head, hide, truncate and full apply only to a sentence; expected a model");
  }
  ExplainInput read = input_of(input);
  if (query) read.settings.query = *query;
  std::optional<Explanation> explanation;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) { explanation = explain(read, {}, runtime.stop); });
  return nb::cast(std::move(*explanation));
}

Explanation lesson_of(const std::string& name, std::optional<std::string> layout) {
  ExplainInput input = lesson_input(name);
  if (layout) input = with_layout(std::move(input), parse_layout(*layout));
  std::optional<Explanation> explanation;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) { explanation = explain(input, {}, runtime.stop); });
  return std::move(*explanation);
}

nb::object embed_of(const SentenceModel& model, const std::vector<std::string>& texts, bool truncate) {
  check_is_encoder(model, "embed");
  std::optional<Tensor<float, 2>> vectors;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) {
    std::vector<std::vector<Index>> ids;
    for (const std::string& text : texts) {
      try {
        ids.push_back(fitted_tokens(model, text, truncate, runtime.stop).tokens.ids);
      } catch (const std::invalid_argument& error) {
        reject("embed", "texts[" + std::to_string(ids.size()) + "]: " + error.what());
      }
    }
    vectors = embed_tokens(model.encoder, ids, runtime);
  });
  const nb::object numpy = nb::module_::import_("numpy");
  NewArray result("embed", "out", numpy.attr("empty")(0), number_type<float>(),
                  {vectors->shape()[0], vectors->shape()[1]});
  const auto view = result.array.view<float, 2>("embed", "out");
  std::copy_n(vectors->data(), vectors->size(), view.data);
  return result.hand_out();
}

Comparison compare_of(const SentenceModel& model, const std::string& word, const std::vector<std::string>& sentences,
                      std::vector<std::string> hide, const std::string& control, bool truncate) {
  CompareOptions options;
  options.hide = std::move(hide);
  options.control = control;
  options.truncate = truncate;
  std::optional<Comparison> comparison;
  run(kUnknownOperations, 0,
      [&](const Runtime& runtime) { comparison = compare_word(model, word, sentences, options, runtime); });
  return std::move(*comparison);
}

SentenceModel load_model_of(nb::handle folder, bool map) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(folder.ptr(), &bytes) == 0) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) reject_type("load_model", "folder", folder, "str or os.PathLike");
    throw nb::python_error();
  }
  const nb::object held = nb::steal(bytes);
  const std::string path(PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes)));
  ModelFileOptions options;
  options.map = map;
  std::optional<SentenceModel> model;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) { model = load_sentence_model(path, options, runtime); });
  return std::move(*model);
}

void bind_views(nb::module_& module) {
  nb::class_<Explanation>(module, "Explanation", "The steps of an attention computation.")
      .def(
          "text",
          [](const Explanation& self, int width, bool color, bool full, const std::string& step) {
            const TextOptions options{.width = width, .color = color, .full = full, .step = step};
            return rendered([&](const Runtime& runtime) { return render_text(self, options, runtime.stop); });
          },
          nb::arg("width") = 80, nb::arg("color") = false, nb::arg("full") = false, nb::arg("step") = "",
          "All steps, or one step specified by name or number, as text.")
      .def(
          "json",
          [](const Explanation& self, const std::string& step) {
            return rendered([&](const Runtime& runtime) { return render_json(self, {.step = step}, runtime.stop); });
          },
          nb::arg("step") = "", "The result as JSON, schema regard/1.")
      .def(
          "html",
          [](const Explanation& self) {
            return rendered([&](const Runtime& runtime) { return render_html(self, {}, runtime.stop); });
          },
          "The result as one HTML page.")
      .def("__repr__", [](const Explanation& self) {
        return rendered([&](const Runtime& runtime) { return render_text(self, {}, runtime.stop); });
      });
  nb::class_<Analysis>(module, "SentenceAnalysis",
                       "The attention of one word in a sentence that a model has processed.")
      .def(
          "text",
          [](const Analysis& self, int width, bool color) {
            const SentenceTextOptions options{.width = width, .color = color};
            return rendered(
                [&](const Runtime& runtime) { return render_sentence_text(self.analysis, options, runtime.stop); });
          },
          nb::arg("width") = 80, nb::arg("color") = false, "The analysis as text.")
      .def(
          "json",
          [](const Analysis& self) {
            return rendered(
                [&](const Runtime& runtime) { return render_sentence_json(self.analysis, {}, runtime.stop); });
          },
          "The result as JSON, schema regard/1.")
      .def(
          "html",
          [](const Analysis& self) {
            return rendered(
                [&](const Runtime& runtime) { return render_sentence_html(self.model, self.analysis, {}, runtime); });
          },
          "The analysis as one HTML page with every head of every layer.")
      .def("__repr__", [](const Analysis& self) {
        return rendered([&](const Runtime& runtime) { return render_sentence_text(self.analysis, {}, runtime.stop); });
      });
  nb::class_<Comparison>(module, "Comparison", "A comparison of one word in several sentences.")
      .def(
          "text",
          [](const Comparison& self, int width, bool color, bool full) {
            const CompareTextOptions options{.width = width, .color = color, .full = full};
            return rendered([&](const Runtime& runtime) { return render_compare_text(self, options, runtime.stop); });
          },
          nb::arg("width") = 80, nb::arg("color") = false, nb::arg("full") = false, "The comparison as text.")
      .def(
          "json",
          [](const Comparison& self) {
            return rendered([&](const Runtime& runtime) { return render_compare_json(self, "", runtime.stop); });
          },
          "The result as JSON, schema regard/1.")
      .def(
          "html",
          [](const Comparison& self) {
            return rendered([&](const Runtime& runtime) { return render_compare_html(self, "", runtime.stop); });
          },
          "The result as one HTML page.")
      .def("findings", &compare_findings, "The findings of the comparison, in sentences.")
      .def("__repr__", [](const Comparison& self) {
        return rendered([&](const Runtime& runtime) { return render_compare_text(self, {}, runtime.stop); });
      });
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<SentenceModel>(
      module, "Model",
      "An encoder of the BERT family with its tokenizer, or a decoder trained with Regard, as returned by\n"
      "load_model.")
      .def_prop_ro("num_layers", [](const SentenceModel& model) { return model.extents().num_layers; })
      .def_prop_ro("num_heads", [](const SentenceModel& model) { return model.extents().num_heads; })
      .def_prop_ro("width", [](const SentenceModel& model) { return model.extents().width; })
      .def_prop_ro("max_positions", [](const SentenceModel& model) { return model.extents().max_positions; })
      .def_prop_ro("folder",
                   [](const SentenceModel& model) {
                     return nb::steal<nb::str>(PyUnicode_DecodeFSDefaultAndSize(
                         model.folder.data(), static_cast<Py_ssize_t>(model.folder.size())));
                   })
      .def(
          "tokens",
          [](const SentenceModel& model, const std::string& text) {
            std::vector<std::string> tokens;
            run(kUnknownOperations, 0, [&](const Runtime& runtime) {
              tokens = fitted_tokens(model, text, false, runtime.stop).tokens.tokens;
            });
            return tokens;
          },
          nb::arg("text"), "The tokens of a text that the model processes, including [CLS] and [SEP].");
  bind_views(module);
  module.def("load_model", &load_model_of, nb::arg("folder"), nb::arg("map") = false,
             nb::sig("def load_model(folder: str | os.PathLike[str], map: bool = False) -> Model"),
             "Loads config.json, tokenizer.json and model.safetensors from a folder in the Hugging Face layout, or\n"
             "the newest checkpoint of a training run, which is a decoder; explain() accepts both kinds of models.\n"
             "With map, the parameters are mapped into memory instead of being read. Raises RuntimeError with the\n"
             "path of the file.");
  module.def("explain", &explain_of, nb::arg("input"), nb::arg("model").none() = nb::none(),
             nb::arg("query") = nb::none(), nb::arg("layer") = nb::none(), nb::arg("head") = nb::none(),
             nb::arg("hide") = nb::list(), nb::arg("truncate") = false, nb::arg("full") = false,
             nb::sig("def explain(input: object, model: Model | None = None, query: str | None = None, "
                     "layer: int | None = None, head: int | None = None, hide: collections.abc.Sequence[str] = (), "
                     "truncate: bool = False, full: bool = False) -> typing.Any"),
             "With a model, input is a sentence, and the result is a SentenceAnalysis of the attention of `query`.\n"
             "Otherwise, input contains matrices and settings as in docs/guide/own-matrices.md, as a dict or JSON,\n"
             "and the result is an Explanation of every step.");
  module.def("lesson", &lesson_of, nb::arg("name"), nb::arg("layout") = nb::none(),
             "Recomputes the calculations in a document that teaches attention. layout is 'rows' or 'columns'. Raises\n"
             "ValueError with a list of all names if the name is unknown.");
  module.def(
      "lesson_entries",
      [] {
        std::vector<std::string> names;
        for (const LessonEntry& entry : lesson_entries()) names.push_back(entry.name);
        return names;
      },
      "Returns the names of all lessons, in reading order.");
  module.def(
      "compare", &compare_of, nb::arg("model"), nb::arg("word"), nb::arg("sentences"), nb::arg("hide") = nb::list(),
      nb::arg("control") = "", nb::arg("truncate") = false,
      nb::sig("def compare(model: Model, word: str, sentences: collections.abc.Sequence[str], "
              "hide: collections.abc.Sequence[str] = (), control: str = '', truncate: bool = False) -> Comparison"),
      "Compares the vectors of one word in several sentences: the differences in each layer, and the heads\n"
      "that cause them.");
  module.def(
      "embed", &embed_of, nb::arg("model"), nb::arg("texts"), nb::arg("truncate") = false,
      nb::sig("def embed(model: Model, texts: collections.abc.Sequence[str], truncate: bool = False) -> typing.Any"),
      "Returns the vectors of texts, (n, E), float32. Each is the mean of the vectors of the text's tokens,\n"
      "normalized to L2 norm 1.");
}

}  // namespace regard::python

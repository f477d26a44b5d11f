#include "launcher/cli/report.h"

#include <cctype>

#include "launcher/base/text.h"
#include "launcher/cli/html_page.h"
#include "launcher/cli/metric_text.h"
#include "launcher/recipe/speeds.h"

namespace strait::cli {
namespace {

using nlohmann::json;

std::string byte_text_of(double bytes) {
  return base::byte_text(static_cast<std::uint64_t>(std::max(bytes, 0.0)));
}

// {"title", "columns", "rows"}, with the cells as text.
template <class S>
json table_figure(std::string title, const std::vector<S>& rows) {
  title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
  json columns = json::array();
  json cells = json::array();
  trace::each_metric<S>([&](const auto& one) {
    if (one.info.column != nullptr) columns.push_back(one.info.column);
  });
  for (const S& row : rows) {
    json& line = cells.emplace_back(json::array());
    trace::each_metric<S>([&](const auto& one) {
      if (one.info.column != nullptr) line.push_back(cell_text(one.info.unit, one.value(row)));
    });
  }
  return {{"title", std::move(title)}, {"columns", std::move(columns)}, {"rows", std::move(cells)}};
}

// What the run did, in a few numbers.
std::string facts(const ReportData& data, const ReportPlan& plan) {
  std::string list;
  const auto add = [&list](const std::string& name, const std::string& value,
                           const std::string& note = "") {
    list += fmt::format("<div><dt>{}</dt><dd>{}</dd>", name, value);
    list +=
        note.empty() ? "</div>" : fmt::format("<dd class=\"note\">{}</dd></div>", escaped(note));
  };
  if (const auto loss = data.curves.find("loss"); loss != data.curves.end()) {
    add("loss", fmt::format("{:.4g} to {}", loss->second.first(), data.last_loss_text()));
  } else if (data.loss_not_finite) {
    add("loss", data.last_loss_text());
  }
  if (!data.evaluations.empty()) {
    add("evaluation loss", fmt::format("{:.4g}", data.evaluations.rbegin()->second));
  }
  if (data.seconds > 0) {
    add("time of the steps", clock_text(data.seconds));
    add("tokens", fmt::format("{:.0f}", data.tokens));
    const double rate = data.tokens / data.seconds;
    const double devices = data.last.is_object() ? number_at(data.last, "devices") : 0;
    const auto text = [](double value) {
      return value < 100 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
    };
    add("tokens a second", text(rate), devices > 1 ? text(rate / devices) + " per device" : "");
    if (data.useful_tflop > 0) {
      const double useful = data.useful_tflop / data.seconds;
      add("TFLOP/s", fmt::format("{:.3g}", useful),
          "of the model, without recompute" +
              (data.peaks_known ? fmt::format("; {:.0f} % of the devices' published peak (MFU)",
                                              100 * data.useful_tflop / data.peak_tflop)
                                : "; the peak of a device is not known"));
    }
    add("sent", byte_text_of(data.sent_bytes));
  }
  const std::vector<LinkLoad> loads = link_loads(plan, data.boundaries.all(), data.sync.all());
  double raw = 0;
  double sent = 0;
  const LinkLoad* slowest = nullptr;  // without compression
  const auto raw_seconds = [](const LinkLoad& load) {
    return load.raw_bytes / load.bytes_per_second.value_or(1);
  };
  for (const LinkLoad& load : loads) {
    raw += load.raw_bytes;
    sent += load.sent_bytes;
    if (!load.bytes_per_second || load.raw_bytes == 0) continue;
    if (slowest == nullptr || raw_seconds(load) > raw_seconds(*slowest)) slowest = &load;
  }
  // Replicas of one host that sum in shared memory would send nothing.
  const bool replicas = std::ranges::any_of(
      data.sync.all(), [](const trace::SyncMetrics& one) { return one.bfloat16_bytes > 0; });
  if (sent > 0 && raw > 0) {
    add("raw would have sent", byte_text_of(raw),
        fmt::format("{:.1f} times the {} of {}{}", raw / sent, byte_text_of(sent),
                    data.boundaries.all().empty() ? "" : "boundaries, in " + plan.raw_dtype,
                    !replicas                       ? ""
                    : data.boundaries.all().empty() ? "replicas, in bfloat16"
                                                    : "; and of replicas, in bfloat16"));
  }
  if (slowest != nullptr) {
    add("raw on the same links", clock_text(raw_seconds(*slowest)),
        fmt::format("instead of {}: on {} {} at {}",
                    clock_text(slowest->sent_bytes / *slowest->bytes_per_second), slowest->link,
                    slowest->direction, plan::text_of_rate(*slowest->bytes_per_second)));
  }
  return list.empty() ? "" : "<dl>" + list + "</dl>\n";
}

json training_figures(const ReportData& data) {
  json figures = json::array();
  std::multimap<int, json> charts;  // in the order of their ranks
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    const trace::Chart& wanted = one.info.chart;
    const auto curve = data.curves.find(one.info.key == nullptr ? "" : one.info.key);
    if (wanted.rank == 0 || curve == data.curves.end()) return;
    charts.emplace(wanted.rank, curve->second.figure(wanted.title, unit_text(one.info.unit)));
  });
  const ReportCurve evaluated = data.evaluation_curve();
  for (auto& [rank, chart] : charts) figures.push_back(std::move(chart));
  if (!evaluated.empty()) {
    figures.insert(figures.begin() + (figures.empty() ? 0 : 1),
                   evaluated.figure("Evaluation loss", "nats"));
  }
  return figures;
}

json stage_figures(const ReportData& data, const ReportPlan& plan) {
  json figures = json::array();
  if (!data.idle.empty()) figures.push_back(data.idle.figure("Bubble", "share of a step"));
  if (!data.tflops.empty()) figures.push_back(data.tflops.figure("Useful work", "TFLOP/s"));
  if (!data.mfu.empty()) figures.push_back(data.mfu.figure("MFU", "share of the published peak"));
  json memory = json::array();
  const auto used = data.last.is_object() ? data.last.value("memory_bytes", json()) : json();
  const auto program = data.last.is_object() ? data.last.value("program_bytes", json()) : json();
  if (used.is_object() && program.is_object()) {
    for (const auto& [process, bytes] : used.items()) {
      const auto planned = plan.memory_bytes.find(process);
      if (!bytes.is_number()) continue;
      memory.push_back({process, bytes.get<double>() - number_at(program, process.c_str()),
                        planned == plan.memory_bytes.end() ? json() : json(planned->second)});
    }
  }
  if (!memory.empty()) {
    figures.push_back({{"title", "Memory of the host against plan"},
                       {"unit", "bytes"},
                       {"limit", "plan"},
                       {"bars", std::move(memory)}});
  }
  return figures;
}

// {"title", "unit", "nodes": [[name, content, replica]], "edges": [[from, to, what, rate,
// capacity]]}; null: not known.
json map_figure(const ReportPlan& plan, const std::vector<LinkLoad>& loads, double seconds) {
  json nodes = json::array();
  for (const ReportPlan::Node& node : plan.nodes) {
    nodes.push_back({node.name, node.content, node.replica});
  }
  json edges = json::array();
  for (const ReportPlan::Path& path : plan.paths) {
    const auto load = std::ranges::find_if(loads, [&path](const LinkLoad& one) {
      return one.link == path.name && one.direction == path.direction;
    });
    const bool counted = path.only_one && load != loads.end() && seconds > 0;
    edges.push_back(
        {path.from, path.to,
         path.direction == "replicas" ? path.direction : path.name + " " + path.direction,
         counted ? json(load->sent_bytes / seconds) : json(),
         path.bytes_per_second ? json(*path.bytes_per_second) : json()});
  }
  return {{"title", "Map"}, {"unit", ""}, {"nodes", std::move(nodes)}, {"edges", std::move(edges)}};
}

json link_figures(const ReportData& data, const ReportPlan& plan) {
  json loads = json::array();
  json figures = json::array();
  const std::vector<LinkLoad> all = link_loads(plan, data.boundaries.all(), data.sync.all());
  if (!plan.paths.empty()) figures.push_back(map_figure(plan, all, data.seconds));
  for (const LinkLoad& load : all) {
    if (data.seconds <= 0) break;
    loads.push_back({load.link + " " + load.direction, load.sent_bytes / data.seconds,
                     load.bytes_per_second ? json(*load.bytes_per_second) : json()});
  }
  if (loads.empty()) return figures;
  figures.push_back({{"title", "Load of links against capacity"},
                     {"unit", "bytes/s"},
                     {"limit", "capacity"},
                     {"bars", std::move(loads)}});
  return figures;
}

json event_figures(const ReportData& data) {
  json rows = json::array();
  for (const ReportMark& mark : data.marks) {
    rows.push_back({fmt::format("{:.0f}", mark.step), mark.text});
  }
  json figures = json::array();
  if (rows.empty()) return figures;
  std::string title = "Events";
  if (data.restarts > 0) {
    title += fmt::format("; the run restarted by itself {}",
                         base::counted(static_cast<std::int64_t>(data.restarts), "time"));
  }
  figures.push_back({{"title", std::move(title)},
                     {"columns", json::array({"step", "event"})},
                     {"rows", std::move(rows)}});
  return figures;
}

json sections(const ReportData& data, const ReportPlan& plan, const StepTimeline& measured) {
  json all = json::array();
  const auto add = [&all](const char* title, json figures) {
    if (!figures.empty()) all.push_back({{"title", title}, {"figures", std::move(figures)}});
  };
  add("Training", training_figures(data));
  json timeline = json::array();
  if (!measured.rows.empty() || !plan.predicted.rows.empty()) {
    timeline.push_back({{"title", "One step"},
                        {"measured", timeline_figure(measured)},
                        {"predicted", timeline_figure(plan.predicted)}});
  }
  if (!data.parts.empty()) {
    timeline.push_back(
        table_figure("forecast beside measured, medians of the latest steps", data.parts));
  }
  add("One step", std::move(timeline));
  add("Stages", stage_figures(data, plan));
  json of_boundaries = json::array();
  const auto over_time = [&of_boundaries](const ReportSeries& series, const char* title,
                                          const char* unit) {
    if (!series.empty()) of_boundaries.push_back(series.figure(title, unit));
  };
  over_time(data.bytes, "Bytes sent a step", "bytes");
  over_time(data.bits, "Bits a value", "bits");
  over_time(data.change, "Change of activations", "share");
  over_time(data.error, "Error of what is received", "share");
  over_time(data.hits, "Cache hits", "share of rows");
  const auto sums = data.boundaries.all();
  if (!sums.empty())
    of_boundaries.push_back(table_figure(sums_title(kBoundaryTraffic, data.boundaries), sums));
  add("Boundaries", std::move(of_boundaries));
  add("Links", link_figures(data, plan));
  json replicas = json::array();
  const auto exchanged = data.sync.all();
  if (!exchanged.empty()) {
    replicas.push_back(data.sync_bytes.figure("Bytes sent to replicas a step", "bytes"));
    if (!data.distance.empty()) {
      replicas.push_back(data.distance.figure("Distance of replicas before a round", "share"));
    }
    std::string title = sums_title(kSyncTraffic, data.sync);
    if (plan.staleness) {
      title +=
          fmt::format("; {}, {:.3g} steps late by the plan", plan.sync_method, *plan.staleness);
    }
    replicas.push_back(table_figure(title, exchanged));
  }
  add("Replicas", std::move(replicas));
  add("Events", event_figures(data));
  return all;
}

}  // namespace

std::string report_page(const ReportData& data, const ReportPlan& plan,
                        const StepTimeline& measured) {
  json marks = json::array();
  for (const ReportMark& mark : data.marks)
    marks.push_back({page_number(mark.step), mark.kind, mark.text});
  const json shown = {{"progress", data.progress.figure("", "")},
                      {"marks", std::move(marks)},
                      {"sections", sections(data, plan, measured)}};
  const std::string state = !data.end.empty()     ? data.end
                            : data.last.is_null() ? "No step yet"
                                                  : fmt::format("Training; written after step {}",
                                                                number_at(data.last, "step"));
  const std::string last =
      data.last.is_null() ? "" : data.last.dump(1, ' ', false, json::error_handler_t::replace);
  return html_page(plan.run,
                   fmt::format("<p>{}</p>\n<p class=\"state\">{}</p>\n{}", escaped(plan.summary),
                               escaped(state), facts(data, plan)),
                   folded("Recipe", plan.recipe) + folded("Plan", plan.text) +
                       folded("Build", fmt::format("{}", fmt::join(data.builds, "\n"))) +
                       folded("Machines", plan.machines) + folded("Last step", last),
                   shown);
}

}  // namespace strait::cli

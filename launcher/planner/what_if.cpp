#include <fmt/ranges.h>

#include <cctype>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {
namespace {

using Hosts = std::vector<recipe::RecipeHost>;

[[noreturn]] void refuse_what_if(const std::string& sentence, const std::string& why) {
  throw base::UserError(base::ExitCode::bad_input, "--what-if \"{}\": {}", sentence, why);
}

Hosts::iterator listed_host(Hosts& hosts, const std::string& name, const std::string& sentence) {
  const auto found = std::ranges::find(hosts, name, &recipe::RecipeHost::name);
  if (found != hosts.end()) return found;
  std::vector<std::string> names;
  for (const recipe::RecipeHost& host : hosts) names.push_back(host.name);
  refuse_what_if(sentence, hosts.empty() ? "this recipe lists no hosts"
                                         : fmt::format("hosts.list has no {}; it has {}", name,
                                                       fmt::join(names, ", ")));
}

// "100mbit" and "100Mbit/s" as the recipe writes rates.
std::string rate_text(const std::string& written) {
  std::string text;
  for (const char c : written) {
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (!text.ends_with("/s")) text += "/s";
  const std::size_t unit = text.find_first_of("mg");
  if (unit != text.npos) text[unit] = text[unit] == 'm' ? 'M' : 'G';
  return text;
}

// One way between hosts whose link is not measured.
double unmeasured_seconds(const recipe::Recipe& recipe, const std::string& from,
                          const std::string& to) {
  plan::Plan two;
  two.recipe = recipe;
  two.hosts = {{.name = from}, {.name = to}};
  return plan::path_speed(two, 0, 1).seconds;
}

// No link is wider than the lines of its hosts, so these are at least as wide.
void widen_lines(recipe::RecipeHost& host, double megabits) {
  for (std::optional<double>* const line : {&host.uplink_megabits, &host.downlink_megabits}) {
    if (*line) *line = std::max(**line, megabits);
  }
}

void set_link(const std::vector<std::string>& words, const std::string& sentence,
              recipe::Recipe& recipe, recipe::LinkTable& speeds) {
  if (recipe.hosts.simulate.any()) {
    refuse_what_if(sentence,
                   "hosts.simulate sets the speed of all links of this recipe, which are on this "
                   "machine; plan with another one: --set hosts.simulate.rate=100Mbit/s");
  }
  const std::string from = listed_host(recipe.hosts.list, words[1], sentence)->name;
  const std::string to = listed_host(recipe.hosts.list, words[2], sentence)->name;
  if (from == to) refuse_what_if(sentence, "a link connects two hosts");
  recipe::Recipe scratch;
  if (!recipe::find_recipe_key("hosts.simulate.rate")->set(rate_text(words[3]), scratch)) {
    refuse_what_if(sentence, fmt::format("{} is no rate, as \"100Mbit/s\" is", words[3]));
  }
  const bool has_delay = words.size() == 5;
  if (has_delay && !recipe::find_recipe_key("hosts.simulate.delay")->set(words[4], scratch)) {
    refuse_what_if(sentence, fmt::format("{} is no delay, as \"20ms\" is", words[4]));
  }
  const auto bits = static_cast<double>(scratch.hosts.simulate.bits_per_second);
  for (const auto& [one, other] : {std::pair(from, to), {to, from}}) {
    widen_lines(*listed_host(recipe.hosts.list, one, sentence), bits / 1e6);
    const recipe::MeasuredLink* known = speeds.link(one, other);
    recipe::MeasuredLink link = known == nullptr ? recipe::MeasuredLink() : *known;
    link.from = one;
    link.to = other;
    if (known == nullptr) link.seconds = unmeasured_seconds(recipe, one, other);
    link.bits_per_second = bits;
    link.flows_bits_per_second = 0;
    if (has_delay) {
      link.seconds = std::chrono::duration<double>(scratch.hosts.simulate.delay).count();
    }
    speeds.links.put({std::move(link)});
  }
}

void leave_out(const std::string& name, const std::string& sentence, recipe::Recipe& recipe) {
  Hosts& hosts = recipe.hosts.list;
  hosts.erase(listed_host(hosts, name, sentence));
  if (hosts.empty()) refuse_what_if(sentence, "it is the only host");
  recipe::Recipe::Pipeline& pipeline = recipe.pipeline;
  if (std::ranges::find(pipeline.hosts, name) == pipeline.hosts.end()) return;
  pipeline.hosts.clear();
  pipeline.rows.reset();
  pipeline.partition = {};
  pipeline.choose_stages = pipeline.choose_replicas = true;
}

// Its link to the host that it is like is that host's fastest one.
void add_like(const std::string& name, const std::string& like, const std::string& sentence,
              recipe::Recipe& recipe, recipe::LinkTable& speeds) {
  Hosts& hosts = recipe.hosts.list;
  recipe::RecipeHost added = *listed_host(hosts, like, sentence);
  added.name = name;
  if (std::ranges::find(hosts, name, &recipe::RecipeHost::name) != hosts.end()) {
    refuse_what_if(sentence, fmt::format("hosts.list has {} already", name));
  }
  hosts.push_back(std::move(added));
  if (const recipe::MeasuredHost* known = speeds.host(like); known != nullptr) {
    recipe::MeasuredHost copy = *known;
    copy.name = name;
    speeds.hosts.push_back(std::move(copy));
  }
  std::vector<recipe::MeasuredLink> links;
  recipe::MeasuredLink best;
  for (recipe::MeasuredLink link : speeds.links) {
    if (link.from != like && link.to != like) continue;
    if (link.bits_per_second > best.bits_per_second) best = link;
    (link.from == like ? link.from : link.to) = name;
    links.push_back(std::move(link));
  }
  if (!links.empty()) {
    best.from = name;
    best.to = like;
    links.push_back(std::move(best));
  }
  speeds.links.put(links);
}

}  // namespace

void apply_what_if(const std::string& sentence, recipe::Recipe& recipe, recipe::LinkTable& speeds) {
  std::istringstream in(sentence);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  const std::string verb = words.empty() ? "" : words.front();
  if (verb == "link" && (words.size() == 4 || words.size() == 5)) {
    set_link(words, sentence, recipe, speeds);
  } else if (verb == "without" && words.size() == 2) {
    leave_out(words[1], sentence, recipe);
  } else if (verb == "add" && words.size() == 4 && words[2] == "like") {
    add_like(words[1], words[3], sentence, recipe, speeds);
  } else {
    refuse_what_if(sentence,
                   "write \"link A B 100Mbit/s\", \"link A B 100Mbit/s 20ms\", \"without A\" or "
                   "\"add D like A\"");
  }
}

}  // namespace strait::planner

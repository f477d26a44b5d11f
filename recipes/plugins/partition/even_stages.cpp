#include <strait/partition.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

// Several chunks a stage, cut so that all stages work equally long: the stage of the head, which is
// slow, gets less elsewhere. ("balanced" makes all chunks alike, and so leaves that stage behind.)
namespace {

using namespace strait::partition;

// Where chunks begin, by their place on the data's way, and behind them where the last one ends.
using Borders = std::vector<int>;

double slowest_stage(const Question& question, const Borders& borders) {
  std::vector<double> seconds(static_cast<std::size_t>(question.stages));
  for (std::size_t place = 0; place + 1 < borders.size(); ++place) {
    for (int i = borders[place]; i < borders[place + 1]; ++i) {
      const Layer& layer = question.model.layers[static_cast<std::size_t>(i)];
      seconds[place % seconds.size()] += *layer.forward_seconds;
    }
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

// Moves one border by one layer where that makes the slowest stage faster; false: nowhere.
bool improve(const Question& question, Borders& borders) {
  const double before = slowest_stage(question, borders);
  for (std::size_t place = 1; place + 1 < borders.size(); ++place) {
    for (const int step : {-1, 1}) {
      Borders tried = borders;
      tried[place] += step;
      const bool empty = tried[place] == tried[place - 1] || tried[place] == tried[place + 1];
      if (empty || slowest_stage(question, tried) >= before) continue;
      borders = tried;
      return true;
    }
  }
  return false;
}

Assignment even_stages(const Question& question) {
  const int layers = static_cast<int>(question.model.layers.size());
  const int chunks = question.stages * question.chunks;
  if (chunks > layers) {
    throw std::runtime_error("a model of " + std::to_string(layers) + " layers has no " +
                             std::to_string(chunks) + " chunks");
  }
  Borders borders;
  for (int place = 0; place <= chunks; ++place) borders.push_back(place * layers / chunks);
  while (improve(question, borders)) {
  }
  Assignment answer;
  answer.stages.resize(static_cast<std::size_t>(question.stages));
  for (std::size_t place = 0; place + 1 < borders.size(); ++place) {
    answer.stages[place % answer.stages.size()].chunks.push_back(
        {borders[place], borders[place + 1] - 1});
  }
  return answer;
}

}  // namespace

STRAIT_PARTITION("even_stages", even_stages)

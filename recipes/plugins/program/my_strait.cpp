#include <strait/main.h>
#include <strait/partition.h>

// strait with a partition linked in. It is asked where plans are made, so the launcher alone needs
// it.
namespace {

using namespace strait::partition;

// As few layers as there can be on every stage but the last: for a last host that is far stronger.
Assignment last_takes_most(const Question& question) {
  const int layers = static_cast<int>(question.model.layers.size());
  Assignment answer;
  for (int s = 0; s < question.stages; ++s) {
    const bool last = s + 1 == question.stages;
    answer.stages.push_back({{{s, last ? layers - 1 : s}}});
  }
  return answer;
}

void offer(strait::Extensions& strait) { strait.partition("last_takes_most", last_takes_most); }

}  // namespace

int main(int argc, char** argv) { return strait::strait_main(argc, argv, offer); }

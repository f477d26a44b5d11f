// Measures how fast this machine's CPU is for the sizes that recipes of tests have, and keeps it in
// a folder. A plan that finds nothing there measures, which takes longer than all else that it
// does, and keeps nothing while other tests run.
#include <filesystem>

#include "framework/store/atomic_file.h"
#include "launcher/base/machine.h"
#include "launcher/compute/cpu_speed.h"
#include "launcher/recipe/links.h"

int main(int /*count*/, char** words) {
  namespace compute = strait::compute;
  const std::filesystem::path folder = words[1];
  strait::store::make_directory(folder);
  for (const int width : {64, 128}) {
    for (const int tokens : {128, 256, 512}) {
      for (const int threads : {1, 2}) {
        const auto size = compute::block_size(width, tokens, threads, strait::base::usable_cores());
        const std::filesystem::path file = compute::file_of_speed(size, folder);
        if (std::filesystem::exists(file)) continue;
        strait::recipe::LinkTable table;
        table.hosts.push_back(compute::cpu_speed("this machine", size, {}));
        strait::store::replace_file(file, strait::recipe::write_links(table, "Of tests."));
      }
    }
  }
}

// Which share of runs goes to the team: team_choice_main ALONE TEAM SPIKE-ALONE SPIKE-TEAM. Microseconds that a run takes on
// one thread and on the team, and that one run in 200 takes.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/team_choice.h"

int main(int, char** arguments) {
  constexpr int kRuns = 200000;
  ngraph_mxnet::TeamChoice choice;
  std::mt19937 random(1);
  double seconds[4];
  for (int i = 0; i < 4; ++i) seconds[i] = std::atof(arguments[1 + i]) * 1e-6;
  int team = 0;
  for (int i = 0; i < kRuns; ++i) {
    const bool alone = choice.alone(false);
    const double noise = std::uniform_real_distribution<>(0.95, 1.05)(random);
    choice.learn(false, alone, noise * seconds[(random() % 200 == 0 ? 2 : 0) + (alone ? 0 : 1)]);
    team += !alone;
  }
  std::printf("%.4f %s\n", static_cast<double>(team) / kRuns, choice.mostly_alone() ? "alone" : "team");
}

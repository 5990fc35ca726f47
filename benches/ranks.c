/* What an MPI library does by itself, beside which `benches/ranks.py` puts what Tandem does with it.
 *
 *   ranks allreduce BYTES ROUNDS STEP_MS [huge]   milliseconds of MPI_Allreduce of so many bytes of floats, in place, after a sleep: a simulated step. With `huge`
 *                                                 in huge pages and in another vector each round, as what Tandem adds up: gradients of a new step lie elsewhere
 *   ranks link                                    between ranks 0 and 1: latency of a message there and back, speed when both send at once
 */
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof(double), by_value);
    return values[count / 2];
}

static float *vector(long bytes, int is_huge) {
    long page = 2 << 20, whole = (bytes + page - 1) / page * page;
    float *values = is_huge ? aligned_alloc(page, whole) : malloc(bytes);
    if (is_huge) madvise(values, whole, MADV_HUGEPAGE);
    return values;
}

static void allreduce(int rank, int world, long bytes, int rounds, double step_ms, int is_huge) {
    int count = (int)(bytes / sizeof(float)), warm_up = 5, others = is_huge ? 3 : 1;
    float *vectors[3];
    for (int other = 0; other < others; other++) vectors[other] = vector(bytes, is_huge);
    double *ms = malloc(rounds * sizeof(double));
    for (int round = -warm_up; round < rounds; round++) {
        float *values = vectors[(round + warm_up) % others];
        for (int at = 0; at < count; at++) values[at] = rank + 1.0f;
        MPI_Barrier(MPI_COMM_WORLD);
        usleep((useconds_t)(1e3 * step_ms));
        double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (round >= 0) ms[round] = 1e3 * (MPI_Wtime() - start);
        float expected = world * (world + 1) / 2;
        if (values[count / 2] != expected) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double own = median(ms, rounds), slowest;
    MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("{\"world\": %d, \"bytes\": %ld, \"ms\": %.4f}\n", world, bytes, slowest);
}

/* Seconds of one way. */
static double one_way(int rank, char *buffer, int bytes, int rounds) {
    double *seconds = malloc(rounds * sizeof(double));
    for (int round = 0; round < rounds; round++) {
        double start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
        seconds[round] = (MPI_Wtime() - start) / 2;
    }
    double result = median(seconds, rounds);
    free(seconds);
    return result;
}

/* Seconds in which each of the two sends to the other. */
static double both_ways(int rank, char *buffer, char *other, int bytes, int rounds) {
    double *seconds = malloc(rounds * sizeof(double));
    for (int round = 0; round < rounds && rank < 2; round++) {
        double start = MPI_Wtime();
        MPI_Sendrecv(buffer, bytes, MPI_BYTE, 1 - rank, 0, other, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        seconds[round] = MPI_Wtime() - start;
    }
    double result = median(seconds, rounds);
    free(seconds);
    return result;
}

static void link_speed(int rank) {
    int large = 4 << 20;
    char *buffer = malloc(large), *other = malloc(large);
    memset(buffer, 1, large);
    memset(other, 2, large);
    one_way(rank, buffer, 1, 100);
    double latency = one_way(rank, buffer, 1, 1000);
    both_ways(rank, buffer, other, large, 5);
    double seconds = both_ways(rank, buffer, other, large, 50);
    if (rank == 0) printf("{\"latency_us\": %.3f, \"bytes_per_s\": %.0f}\n", 1e6 * latency, large / (seconds - latency));
}

int main(int argc, char **argv) {
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (argc >= 5 && !strcmp(argv[1], "allreduce")) allreduce(rank, world, atol(argv[2]), atoi(argv[3]), atof(argv[4]), argc == 6 && !strcmp(argv[5], "huge"));
    else if (argc == 2 && !strcmp(argv[1], "link") && world >= 2) link_speed(rank);
    else if (rank == 0) fprintf(stderr, "allreduce BYTES ROUNDS STEP_MS [huge], or link (two ranks)\n");
    MPI_Finalize();
    return 0;
}

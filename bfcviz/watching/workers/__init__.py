"""Many workers watched live: `watch_workers` for a Dask cluster, `follow_workers` for a folder of recordings.

Enters: a Dask client, or a folder. Each worker records on its own (`record_in_worker`, in a Dask worker begun by
`dask_plugin`); all recordings lie in one folder, where `collector` puts what it fetches from other machines. Leaves:
a trace a worker, and `WorkersDashboard`, which shows all of them. Dask is an extra: `dask_plugin` and `collector` alone
import it.
"""

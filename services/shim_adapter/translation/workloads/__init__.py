"""Workloads: the pods that their operators would make, with the gang that each asks for.

A kind is one function from its document to ``Replicas``: pods of one template and how many of them
must start at once. ``EXPANDERS`` names them all; ``pods.py`` makes pods and gangs of what they say.
"""

from services.shim_adapter.translation.workloads import apps, kubeflow, ray, spark, trainer, volcano
from services.shim_adapter.translation.workloads.replicas import Expander

EXPANDERS: dict[tuple[str, str], Expander] = {
    ("", "Pod"): apps.pod,
    ("apps", "Deployment"): apps.replica_set,
    ("apps", "ReplicaSet"): apps.replica_set,
    ("apps", "StatefulSet"): apps.stateful_set,
    ("apps", "DaemonSet"): apps.daemon_set,
    ("batch", "Job"): apps.job,
    ("batch", "CronJob"): apps.cron_job,
    ("kubeflow.org", "PyTorchJob"): kubeflow.pytorch_job,
    ("kubeflow.org", "TFJob"): kubeflow.tf_job,
    ("kubeflow.org", "MPIJob"): kubeflow.mpi_job,
    ("kubeflow.org", "XGBoostJob"): kubeflow.xgboost_job,
    ("kubeflow.org", "PaddleJob"): kubeflow.paddle_job,
    ("kubeflow.org", "JAXJob"): kubeflow.jax_job,
    ("trainer.kubeflow.org", "TrainJob"): trainer.train_job,
    ("jobset.x-k8s.io", "JobSet"): trainer.job_set,
    ("sparkoperator.k8s.io", "SparkApplication"): spark.spark_application,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("ray.io", "RayJob"): ray.ray_job,
    ("batch.volcano.sh", "Job"): volcano.job,
}
"""By API group and kind; a document without an apiVersion is taken by its kind."""

__all__ = ["EXPANDERS"]
